//! The list of tools, and the one way to call them.
//!
//! To add a tool, implement [`Tool`] for its input and add one line to [`Registry::standard`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};
use tracing::{Instrument, trace_span};

use crate::spans;
use crate::tools::event_history::EventHistory;
use crate::tools::explain_rank::ExplainRank;
use crate::tools::find_outlier_nodes::FindOutlierNodes;
use crate::tools::get_cost::GetCost;
use crate::tools::run_analysis::RunAnalysis;
use crate::tools::{ToolContext, ToolError};

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

    /// Answers.
    fn call(
        self,
        context: &ToolContext,
    ) -> impl Future<Output = Result<Self::Answer, ToolError>> + Send;
}

/// An answer on its way, as JSON text.
type Pending = Pin<Box<dyn Future<Output = Result<String, ToolError>> + Send>>;

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
        self.tools.push(Registered {
            name: T::NAME,
            title: T::TITLE,
            description: T::DESCRIPTION,
            input_schema: input_schema::<T>(),
            output_schema: output_schema::<T::Answer>(),
            run: run::<T>,
        });
    }

    /// The tools, in the order of registration.
    pub fn tools(&self) -> &[Registered] {
        &self.tools
    }

    /// Calls a tool by its name or alias. The answer is JSON text, the same bytes on every transport.
    pub async fn dispatch(
        &self,
        context: &ToolContext,
        name: &str,
        input: Value,
    ) -> Result<String, ToolError> {
        let tool = self.find(name)?;
        let mut input = if input.is_null() {
            Value::Object(Map::new())
        } else {
            input
        };
        if !input.is_object() {
            return Err(ToolError::Invalid {
                field: None,
                message: "the input is not a JSON object".to_owned(),
            });
        }
        make_whole(&mut input);
        let _place = context.places.take().await?;
        let deadline = context.limits.deadline;
        let span = trace_span!(target: spans::TARGET, spans::QUERY, tool.name = tool.name);
        let answer = (tool.run)(context.clone(), input).instrument(span);
        tokio::time::timeout(deadline, answer)
            .await
            .unwrap_or(Err(ToolError::Timeout { deadline }))
    }

    fn find(&self, name: &str) -> Result<&Registered, ToolError> {
        let found = self
            .tools
            .iter()
            .find(|tool| tool.name == name || tool.alias() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name).collect();
            ToolError::UnknownTool {
                name: name.to_owned(),
                known: names.join(", "),
            }
        })
    }
}

fn run<T: Tool>(context: ToolContext, input: Value) -> Pending {
    Box::pin(async move {
        let tool: T = serde_path_to_error::deserialize(input).map_err(|error| {
            let path = error.path().to_string();
            ToolError::Invalid {
                field: (path != ".").then_some(path),
                message: error.into_inner().to_string(),
            }
        })?;
        let answer = tool.call(&context).await?;
        serde_json::to_string(&answer).map_err(ToolError::Unwritable)
    })
}

/// Writes whole numbers such as `300.0` as integers: for JSON Schema they are, for serde they are not.
fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|_| number.is_f64()).and_then(whole) {
                *number = Number::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "only numbers that a double holds exactly are converted"
)]
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

fn input_schema<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    without_null(&mut schema);
    schema
}

fn output_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    simplify(&mut schema);
    schema
}

/// Drops what strict clients refuse: number formats of Rust, and defaults that say nothing.
fn simplify(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        if fields.get("format").is_some_and(Value::is_string) {
            fields.remove("format");
        }
        if fields.get("default") == Some(&Value::Null) {
            fields.remove("default");
        }
    }
    each_child(schema, simplify);
}

/// Makes `T or null` plain `T`: in an input, absent says the same as null, and some clients take one type only.
fn without_null(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        if let Some(Value::Array(types)) = fields.get_mut("type") {
            types.retain(|name| name != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                fields.insert("type".to_owned(), only);
            }
        }
        let is_null = |variant: &Value| variant.get("type").is_some_and(|name| name == "null");
        if let Some(Value::Array(variants)) = fields.get_mut("anyOf") {
            variants.retain(|variant| !is_null(variant));
            if let [Value::Object(only)] = variants.as_slice() {
                let only = only.clone();
                fields.remove("anyOf");
                fields.extend(only);
            }
        }
    }
    each_child(schema, without_null);
}

fn each_child(schema: &mut Value, change: fn(&mut Value)) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(change),
        Value::Object(fields) => fields.values_mut().for_each(change),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests;
