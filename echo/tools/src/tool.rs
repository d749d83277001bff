//! What a tool is: its input, a name and a description for people and models, and an answer.

use std::future::Future;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::picture::Format;
use crate::picture::figure::Figure;
use crate::scope::{Scope, ScopeRequest};
use crate::{ToolContext, ToolError};

/// A question. The implementing struct is the input; it denies unknown fields.
pub trait Tool: DeserializeOwned + JsonSchema + Send + 'static {
    /// Name, with dots.
    const NAME: &'static str;
    /// Short name for people.
    const TITLE: &'static str;
    /// What it answers, for people and for models that choose a tool by it.
    const DESCRIPTION: &'static str;
    /// The answer.
    type Answer: Serialize + JsonSchema + Send;

    /// The cluster and the time that the question is about: all of them and the last hour unless the input says so.
    fn scope_request(&self) -> ScopeRequest {
        ScopeRequest::default()
    }

    /// Answers, once that is found out.
    fn call(
        self,
        scope: &Scope<'_>,
    ) -> impl Future<Output = Result<Self::Answer, ToolError>> + Send;

    /// Finds out what is asked about, and answers.
    fn run(
        self,
        context: &ToolContext,
    ) -> impl Future<Output = Result<Self::Answer, ToolError>> + Send {
        async move {
            let scope = Scope::resolve(context, self.scope_request()).await?;
            self.call(&scope).await
        }
    }

    /// Whether the caller needs to be allowed to ask in SQL.
    const NEEDS_SQL: bool = false;

    /// Whether the input has a field `plot`, and [`Tool::plot`] heeds it.
    const SUPPORTS_PLOT: bool = false;

    /// How the answer is to be drawn; nothing when no picture is asked for.
    fn plot(&self) -> Option<Plot<Self::Answer>> {
        None
    }
}

/// The form of a picture, and what lays it out from an answer.
#[derive(Debug)]
pub struct Plot<A> {
    /// Image format.
    pub format: Format,
    /// Lays out the figure from an answer.
    pub layout: fn(&A) -> Figure,
}
