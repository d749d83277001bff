//! Trait of a tool: input, name, description and answer.

use std::future::Future;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::picture::Format;
use crate::picture::figure::Figure;
use crate::rounding::Precision;
use crate::scope::{Scope, ScopeRequest};
use crate::{ToolContext, ToolError};

/// A tool. The implementing struct is its input; it denies unknown fields.
pub trait Tool: DeserializeOwned + JsonSchema + Send + 'static {
    /// Name, with dots.
    const NAME: &'static str;
    /// Display name.
    const TITLE: &'static str;
    /// Description by which people and models choose the tool.
    const DESCRIPTION: &'static str;
    /// Type of the answer.
    type Answer: Serialize + JsonSchema + Send;

    /// Cluster and time range of the request. Default: all clusters and the last hour.
    fn scope_request(&self) -> ScopeRequest {
        ScopeRequest::default()
    }

    /// Computes the answer within a resolved scope.
    fn call(
        self,
        scope: &Scope<'_>,
    ) -> impl Future<Output = Result<Self::Answer, ToolError>> + Send;

    /// Resolves the scope, then computes the answer.
    fn run(
        self,
        context: &ToolContext,
    ) -> impl Future<Output = Result<Self::Answer, ToolError>> + Send {
        async move {
            let scope = Scope::resolve(context, self.scope_request()).await?;
            self.call(&scope).await
        }
    }

    /// The answer in one line of text, for readers who may not need the rest; `None` where rows
    /// alone say what there is.
    fn headline(_answer: &Self::Answer) -> Option<String> {
        None
    }

    /// True when the caller needs permission to run SQL.
    const NEEDS_SQL: bool = false;

    /// Precision of the numbers in the answer.
    const PRECISION: Precision = Precision::Rounded;

    /// True when the input has a field `plot` that [`Tool::plot`] uses.
    const SUPPORTS_PLOT: bool = false;

    /// Plot of the answer; absent when none was requested.
    fn plot(&self) -> Option<Plot<Self::Answer>> {
        None
    }
}

/// Plot of an answer.
#[derive(Debug)]
pub struct Plot<A> {
    /// Image format.
    pub format: Format,
    /// Lays out the figure from an answer.
    pub layout: fn(&A) -> Figure,
}
