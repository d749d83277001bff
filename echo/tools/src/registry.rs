//! The list of tools, and the one way to call them.
//!
//! To add a tool, implement [`Tool`] for its input and add one line to [`Registry::standard`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use echo_access::Principal;
use echo_core::spans;
use serde_json::Value;
use tracing::{Instrument, trace_span};

use crate::arguments::{Arguments, shown};
use crate::event_history::EventHistory;
use crate::explain_rank::ExplainRank;
use crate::find_outlier_nodes::FindOutlierNodes;
use crate::get_cost::GetCost;
use crate::picture::figure::Figure;
use crate::picture::{DrawError, Format, Picture, render};
use crate::run_analysis::RunAnalysis;
use crate::schemas::{input_schema, output_schema};
use crate::tool::Tool;
use crate::{ToolContext, ToolError};

/// What a tool answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The answer as JSON.
    pub text: String,
    /// The answer as a picture, when one was asked for.
    pub picture: Option<Picture>,
}

/// An answer on its way.
type Pending = Pin<Box<dyn Future<Output = Result<Answered, ToolError>> + Send>>;

/// A tool as transports see it.
pub struct Registered {
    /// Name, with dots.
    pub name: &'static str,
    /// Short name for people.
    pub title: &'static str,
    /// What it answers.
    pub description: &'static str,
    /// JSON schema of the input.
    pub input_schema: Value,
    /// JSON schema of the answer.
    pub output_schema: Value,
    /// Whether the caller needs to be allowed to ask in SQL.
    pub needs_sql: bool,
    /// Whether it draws its answer for whoever says `plot`.
    pub draws: bool,
    /// What holds an input against its schema; absent if that is no schema, so that every call of the tool fails.
    arguments: Option<Arguments>,
    run: fn(ToolContext, Value) -> Pending,
}

impl Registered {
    /// The name for clients that take no dots in it.
    pub fn alias(&self) -> String {
        self.name.replace('.', "_")
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The tools.
#[derive(Debug, Default)]
pub struct Registry {
    tools: Vec<Registered>,
}

impl Registry {
    /// All tools of Echo.
    pub fn standard() -> Self {
        let mut registry = Self::default();
        registry.register::<FindOutlierNodes>();
        registry.register::<ExplainRank>();
        registry.register::<GetCost>();
        registry.register::<EventHistory>();
        registry.register::<RunAnalysis>();
        registry
    }

    /// Adds a tool.
    pub fn register<T: Tool>(&mut self) {
        let input_schema = input_schema::<T>();
        self.tools.push(Registered {
            name: T::NAME,
            title: T::TITLE,
            description: T::DESCRIPTION,
            needs_sql: T::NEEDS_SQL,
            draws: T::DRAWS,
            arguments: Arguments::of(&input_schema),
            input_schema,
            output_schema: output_schema::<T::Answer>(),
            run: run::<T>,
        });
    }

    /// The tools that a caller may use, in the order of registration.
    pub fn tools_for<'a, 'b>(
        &'a self,
        caller: &'b Principal,
    ) -> impl Iterator<Item = &'a Registered> + use<'a, 'b> {
        let ask = caller.ask.as_ref();
        self.tools.iter().filter(move |tool| {
            ask.is_some_and(|ask| ask.tools.allows(tool.name) && (ask.sql || !tool.needs_sql))
        })
    }

    /// The tools, in the order of registration.
    pub fn tools(&self) -> &[Registered] {
        &self.tools
    }

    /// Calls a tool by its name or alias. Its text is the same bytes on every transport.
    pub async fn dispatch(
        &self,
        context: &ToolContext,
        name: &str,
        input: Value,
    ) -> Result<Answered, ToolError> {
        let tool = self.find_for(&context.caller, name)?;
        let arguments = tool.arguments.as_ref().ok_or(ToolError::Unchecked)?;
        let input = arguments.check(input)?;
        let span = trace_span!(target: spans::TARGET, spans::QUERY, tool.name = tool.name);
        let answer = (tool.run)(context.clone(), input).instrument(span);
        if tool.needs_sql {
            // SQL has places of its own, so that it takes none from other questions.
            context.beside_places(answer).await
        } else {
            context.bounded(answer).await
        }
    }

    /// Calls a tool as a type, under the same rules; nothing for callers that may not use it.
    pub async fn ask<T: Tool>(
        &self,
        context: &ToolContext,
        tool: T,
    ) -> Result<Option<T::Answer>, ToolError> {
        if self.find_for(&context.caller, T::NAME).is_err() {
            return Ok(None);
        }
        let span = trace_span!(target: spans::TARGET, spans::QUERY, tool.name = T::NAME);
        let answer = tool.answer(context).instrument(span);
        context.bounded(answer).await.map(Some)
    }

    /// The tool with that name or alias, if the caller may use it. One that he may not use is as if it were not there.
    pub fn find_for(&self, caller: &Principal, name: &str) -> Result<&Registered, ToolError> {
        let found = self
            .tools_for(caller)
            .find(|tool| tool.name == name || tool.alias() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.tools_for(caller).map(|tool| tool.name).collect();
            ToolError::UnknownTool {
                name: shown(name),
                known: names.join(", "),
            }
        })
    }
}

fn run<T: Tool>(context: ToolContext, input: Value) -> Pending {
    Box::pin(async move {
        let tool: T = serde_path_to_error::deserialize(input).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." { "" } else { path.as_str() };
            ToolError::invalid(field, error.into_inner().to_string())
        })?;
        let drawing = tool.drawing();
        let answer = tool.answer(&context).await?;
        let figure = drawing.map(|(format, layout)| (format, layout(&answer)));
        Ok(Answered {
            text: serde_json::to_string(&answer).map_err(ToolError::Unwritable)?,
            picture: match figure {
                Some((format, figure)) => Some(drawn(figure, format).await?),
                None => None,
            },
        })
    })
}

/// Draws where it keeps nobody waiting.
async fn drawn(figure: Figure, format: Format) -> Result<Picture, DrawError> {
    tokio::task::spawn_blocking(move || render(&figure, format))
        .await
        .map_err(|error| DrawError::Ended(error.into()))?
}

#[cfg(test)]
mod tests;
