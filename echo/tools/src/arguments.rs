//! Validation of tool inputs against the schema of the tool, with lenient conversion.
//!
//! Also accepted are integers written as `300.0`, numbers and booleans written as strings, and null
//! for an absent field: models, query strings and typed clients send these. Nothing else is
//! converted.

use std::collections::BTreeMap;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::{Number, Value};

use crate::time::{TimeArg, WindowArg};
use crate::{ToolError, Violation};

/// Maximum length of a value quoted in an error, in characters.
const MAX_EXCERPT: usize = 60;

/// Maximum number of violations listed in an error.
const MAX_VIOLATIONS: usize = 20;

/// Validator of the input of a tool.
#[derive(Debug)]
pub(super) struct InputValidator {
    validator: Validator,
    fields: BTreeMap<String, Field>,
}

#[derive(Debug)]
struct Field {
    kind: ScalarKind,
    description: String,
}

/// Type that a string is converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScalarKind {
    Number,
    Bool,
    /// No conversion.
    Text,
}

impl InputValidator {
    /// Builds the validator of a schema; `None` when the schema is invalid.
    pub(super) fn new(schema: &Value) -> Option<Self> {
        let properties = schema.get("properties").and_then(Value::as_object);
        Some(Self {
            validator: jsonschema::draft202012::new(schema).ok()?,
            fields: properties
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), Field::from_schema(schema)))
                .collect(),
        })
    }

    /// Returns the input converted to the types of the schema, or all violations.
    pub(super) fn validate(&self, input: Value) -> Result<Value, ToolError> {
        let Value::Object(mut fields) = input else {
            return Err(ToolError::invalid("", "the input must be a JSON object"));
        };
        fields.retain(|name, value| !(value.is_null() && self.fields.contains_key(name)));
        for (name, value) in &mut fields {
            if let Some(field) = self.fields.get(name) {
                field.kind.coerce(value);
            }
        }
        let mut input = Value::Object(fields);
        normalize_integers(&mut input);
        let mut wrong: Vec<Violation> = self
            .validator
            .iter_errors(&input)
            .flat_map(|error| self.violations(&error))
            .take(MAX_VIOLATIONS + 1)
            .collect();
        if wrong.len() > MAX_VIOLATIONS {
            wrong.truncate(MAX_VIOLATIONS);
            wrong.push(Violation {
                pointer: String::new(),
                message: "further violations omitted".to_owned(),
            });
        }
        if wrong.is_empty() {
            Ok(input)
        } else {
            Err(ToolError::Invalid(wrong))
        }
    }

    fn violations(&self, error: &ValidationError<'_>) -> Vec<Violation> {
        let at = error.instance_path().as_str();
        let named = |name: &str, message: String| Violation {
            pointer: format!("{at}/{}", escaped(name)),
            message,
        };
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let known: Vec<&str> = self.fields.keys().map(String::as_str).collect();
                let message = format!("unknown field (known: {})", known.join(", "));
                let unexpected = unexpected.iter().take(MAX_VIOLATIONS + 1);
                unexpected
                    .map(|name| named(&excerpt(name), message.clone()))
                    .collect()
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                vec![named(name, "is missing".to_owned())]
            }
            kind => vec![Violation {
                pointer: at.to_owned(),
                message: self.message(at, kind, error),
            }],
        }
    }

    /// Message of a violation. A violated pattern is explained by the description of the field,
    /// because a regular expression helps neither people nor models.
    fn message(&self, at: &str, kind: &ValidationErrorKind, error: &ValidationError<'_>) -> String {
        let value = excerpt(&error.instance().to_string());
        let name = at.trim_start_matches('/');
        if let Some(message) = time_error(name, error.instance()) {
            return message;
        }
        match (kind, self.fields.get(name)) {
            (
                ValidationErrorKind::Pattern { .. } | ValidationErrorKind::AnyOf { .. },
                Some(field),
            ) => format!("{value} is invalid; expected: {}", field.description),
            _ => error.masked_with(value).to_string(),
        }
    }
}

impl Field {
    fn from_schema(schema: &Value) -> Self {
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let variants = schema.get("anyOf").and_then(Value::as_array);
        let is_number = |schema: &Value| {
            schema
                .get("type")
                .is_some_and(|kind| kind == "integer" || kind == "number")
        };
        let may_be_number = variants.is_some_and(|variants| variants.iter().any(is_number));
        Self {
            kind: match text("type") {
                _ if may_be_number || is_number(schema) => ScalarKind::Number,
                "boolean" => ScalarKind::Bool,
                _ => ScalarKind::Text,
            },
            description: text("description").replace('\n', " "),
        }
    }
}

impl ScalarKind {
    /// Converts a string in place, if it parses.
    fn coerce(self, value: &mut Value) {
        let Value::String(text) = &*value else {
            return;
        };
        let parsed = match self {
            Self::Number => serde_json::from_str::<Number>(text).ok().map(Value::Number),
            Self::Bool => text.parse().ok().map(Value::Bool),
            Self::Text => None,
        };
        if let Some(parsed) = parsed {
            *value = parsed;
        }
    }
}

/// Explains why a time argument does not parse; `None` for other arguments.
fn time_error(name: &str, value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => excerpt(text),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    match name {
        "window" => text.parse::<WindowArg>().err(),
        "from" | "to" => text.parse::<TimeArg>().err(),
        _ => None,
    }
}

/// Escapes a name for a JSON pointer (RFC 6901).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns the beginning of a text without control characters.
pub(super) fn excerpt(text: &str) -> String {
    let mut excerpt: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_EXCERPT)
        .collect();
    if excerpt.len() < text.len() && text.chars().count() > MAX_EXCERPT {
        excerpt.push_str("...");
    }
    excerpt
}

/// Converts numbers such as `300.0` to integers: JSON Schema treats them as integers, serde does
/// not.
fn normalize_integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|_| number.is_f64()).and_then(whole) {
                *number = Number::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_integers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_integers),
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

#[cfg(test)]
mod tests;
