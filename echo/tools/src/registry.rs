//! Registry of tools and the single entry point for tool calls.
//!
//! To add a tool, implement [`Tool`] for its input and add one line to [`Registry::standard`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use echo_access::Principal;
use echo_core::spans;
use serde_json::Value;
use tracing::{Instrument, trace_span};

use crate::arguments::{InputValidator, excerpt};
use crate::event_history::EventHistory;
use crate::explain_rank::ExplainRank;
use crate::find_outlier_nodes::FindOutlierNodes;
use crate::get_cost::GetCost;
use crate::host::causal_chains::GetCausalChains;
use crate::host::check::HostCheck;
use crate::host::graph_lifecycle::GraphLifecycle;
use crate::host::stacks::GetStacks;
use crate::host::trace_stats::GetTraceStats;
use crate::picture::figure::Figure;
use crate::picture::{DrawError, Format, Picture, render};
use crate::rounding::to_json;
use crate::run_analysis::RunAnalysis;
use crate::schemas::{input_schema, output_schema};
use crate::tool::Tool;
use crate::{ToolContext, ToolError};

#[cfg(any(test, feature = "testing"))]
pub mod schema_diff;

/// Output of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// Answer as JSON.
    pub text: String,
    /// The answer in one line of text, if its tool has one.
    pub headline: Option<String>,
    /// Plot of the answer, when one was requested.
    pub picture: Option<Picture>,
}

/// Tool call in flight.
type ToolFuture = Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send>>;

/// Tool as transports see it.
pub struct RegisteredTool {
    /// Name, with dots.
    pub name: &'static str,
    /// Display name.
    pub title: &'static str,
    /// Description for people and models.
    pub description: &'static str,
    /// JSON schema of the input.
    pub input_schema: Value,
    /// JSON schema of the answer.
    pub output_schema: Value,
    /// True when the caller needs permission to run SQL.
    pub needs_sql: bool,
    /// True when the input has a field `plot`.
    pub supports_plot: bool,
    /// Validator of inputs; absent when the schema is invalid, in which case every call of the tool
    /// fails.
    validator: Option<InputValidator>,
    run: fn(ToolContext, Value) -> ToolFuture,
}

impl RegisteredTool {
    /// Name with underscores, for clients that reject dots.
    pub fn alias(&self) -> String {
        self.name.replace('.', "_")
    }
}

impl fmt::Debug for RegisteredTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredTool")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// All registered tools.
#[derive(Debug, Default)]
pub struct Registry {
    tools: Vec<RegisteredTool>,
}

impl Registry {
    /// Returns the registry of all tools of Echo.
    pub fn standard() -> Self {
        let mut registry = Self::default();
        registry.register::<FindOutlierNodes>();
        registry.register::<ExplainRank>();
        registry.register::<GetCost>();
        registry.register::<EventHistory>();
        registry.register::<RunAnalysis>();
        registry.register::<GetCausalChains>();
        registry.register::<GetTraceStats>();
        registry.register::<GetStacks>();
        registry.register::<GraphLifecycle>();
        registry.register::<HostCheck>();
        registry
    }

    /// Adds a tool.
    pub fn register<T: Tool>(&mut self) {
        let input_schema = with_fields_at_root(input_schema::<T>());
        self.tools.push(RegisteredTool {
            name: T::NAME,
            title: T::TITLE,
            description: T::DESCRIPTION,
            needs_sql: T::NEEDS_SQL,
            supports_plot: T::SUPPORTS_PLOT,
            validator: InputValidator::new(&input_schema),
            input_schema,
            output_schema: output_schema::<T::Answer>(),
            run: run_tool::<T>,
        });
    }

    /// Tools that a caller may use, in the order of registration.
    pub fn tools_for<'a, 'b>(
        &'a self,
        caller: &'b Principal,
    ) -> impl Iterator<Item = &'a RegisteredTool> + use<'a, 'b> {
        let query = caller.query.as_ref();
        self.tools.iter().filter(move |tool| {
            query.is_some_and(|query| {
                query.tools.allows(tool.name) && (query.sql || !tool.needs_sql)
            })
        })
    }

    /// Tools in the order of registration.
    pub fn tools(&self) -> &[RegisteredTool] {
        &self.tools
    }

    /// Calls a tool by name or alias. The text of the output is byte-identical on every transport.
    pub async fn dispatch(
        &self,
        context: &ToolContext,
        name: &str,
        input: Value,
    ) -> Result<ToolOutput, ToolError> {
        let tool = self.find(&context.caller, name)?;
        let validator = tool.validator.as_ref().ok_or(ToolError::InvalidSchema)?;
        let input = validator.validate(input)?;
        let span = trace_span!(target: spans::TARGET, spans::QUERY, tool.name = tool.name);
        let answer = (tool.run)(context.clone(), input).instrument(span);
        if tool.needs_sql {
            // The store limits concurrent SQL by itself, so SQL does not count against other
            // queries.
            context.run_unlimited(answer).await
        } else {
            context.run_limited(answer).await
        }
    }

    /// Calls a tool by type, with the same permissions and limits; returns `None` when the caller
    /// may not use it.
    pub async fn call<T: Tool>(
        &self,
        context: &ToolContext,
        tool: T,
    ) -> Result<Option<T::Answer>, ToolError> {
        if self.find(&context.caller, T::NAME).is_err() {
            return Ok(None);
        }
        let span = trace_span!(target: spans::TARGET, spans::QUERY, tool.name = T::NAME);
        let answer = tool.run(context).instrument(span);
        context.run_limited(answer).await.map(Some)
    }

    /// Finds a tool by name or alias. A tool that the caller may not use is reported as unknown.
    pub fn find(&self, caller: &Principal, name: &str) -> Result<&RegisteredTool, ToolError> {
        let found = self
            .tools_for(caller)
            .find(|tool| tool.name == name || tool.alias() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.tools_for(caller).map(|tool| tool.name).collect();
            ToolError::UnknownTool {
                name: excerpt(name),
                known: names.join(", "),
            }
        })
    }
}

/// Replaces a reference at the root by the definition that it leads to: validation and transports
/// read the fields there.
fn with_fields_at_root(mut schema: Value) -> Value {
    if let Value::Object(root) = &mut schema
        && let Some(Value::String(target)) = root.remove("$ref")
        && let Some(Value::Object(mut definitions)) = root.remove("$defs")
        && let Some(name) = target.strip_prefix("#/$defs/")
        && let Some(Value::Object(fields)) = definitions.remove(name)
    {
        for (name, value) in fields {
            // Title and description are those of the tool.
            root.entry(name).or_insert(value);
        }
        if !definitions.is_empty() {
            root.insert("$defs".to_owned(), Value::Object(definitions));
        }
    }
    schema
}

fn run_tool<T: Tool>(context: ToolContext, input: Value) -> ToolFuture {
    Box::pin(async move {
        let tool: T = serde_path_to_error::deserialize(input).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." { "" } else { path.as_str() };
            ToolError::invalid(field, error.into_inner().to_string())
        })?;
        let plot = tool.plot();
        let answer = tool.run(&context).await?;
        let figure = plot.map(|plot| (plot.format, (plot.layout)(&answer)));
        Ok(ToolOutput {
            headline: T::headline(&answer),
            text: to_json(&answer, T::PRECISION).map_err(ToolError::Json)?,
            picture: match figure {
                Some((format, figure)) => Some(draw(figure, format).await?),
                None => None,
            },
        })
    })
}

/// Draws a figure off the async runtime, because drawing blocks.
pub async fn draw(figure: Figure, format: Format) -> Result<Picture, DrawError> {
    tokio::task::spawn_blocking(move || render(&figure, format))
        .await
        .map_err(|error| DrawError::Aborted(error.into()))?
}

#[cfg(test)]
mod tests;
