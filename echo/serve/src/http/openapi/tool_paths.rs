//! The two operations of a tool.

use echo_core::error::Code;
use echo_tools::picture::Format;
use echo_tools::registry::RegisteredTool;
use serde_json::{Map, Value, json};

use crate::http::openapi::{in_json, responses};

/// Errors of a query.
const ERRORS: [Code; 9] = [
    Code::Invalid,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::NotFound,
    Code::TooMany,
    Code::Refused,
    Code::Busy,
    Code::Timeout,
    Code::Internal,
];

/// Additional errors of a query with a body.
const BODY_ERRORS: [Code; 2] = [Code::TooLarge, Code::WrongType];

/// Returns GET and POST of a tool. Adds its schemas to `schemas`.
pub(super) fn path(tool: &RegisteredTool, schemas: &mut Map<String, Value>) -> Value {
    let name = type_name(tool);
    let input = hoist(&tool.input_schema, &format!("{name}Input"), schemas);
    let answer = hoist(&tool.output_schema, &format!("{name}Answer"), schemas);
    let mut parameters = parameters(&tool.input_schema);
    let mut answer = in_json("The answer.", answer);
    if tool.supports_plot {
        // `plot` and `format` are equivalent in a query, so only one is documented.
        parameters.retain(|parameter| parameter.get("name") != Some(&json!("plot")));
        parameters.push(format_parameter());
        add_pictures(&mut answer);
    }
    let body_errors = [ERRORS.as_slice(), &BODY_ERRORS].concat();
    json!({
        "get": {
            "operationId": format!("get_{}", tool.alias()),
            "summary": tool.title,
            "description": tool.description,
            "tags": ["tools"],
            "parameters": parameters,
            "responses": responses(answer.clone(), &ERRORS),
        },
        "post": {
            "operationId": tool.alias(),
            "summary": tool.title,
            "description": tool.description,
            "tags": ["tools"],
            "requestBody": {
                "required": is_needed(&tool.input_schema),
                "content": { "application/json": { "schema": input, "example": example(&tool.input_schema) } },
            },
            "responses": responses(answer, &body_errors),
        },
    })
}

/// Adds the media types of pictures to a response.
fn add_pictures(answer: &mut Value) {
    if let Some(Value::Object(content)) = answer.get_mut("content") {
        let kinds = Format::ALL.map(|format| (format.media_type().to_owned(), json!({})));
        content.extend(kinds);
    }
}

fn format_parameter() -> Value {
    let forms = ["json"].into_iter().chain(Format::ALL.map(Format::name));
    json!({
        "name": "format",
        "in": "query",
        "required": false,
        "description": "Format of the answer: JSON, or a picture of it.",
        "schema": { "type": "string", "enum": forms.collect::<Vec<_>>(), "default": "json" },
    })
}

/// Converts `fleet.cluster.get_cost` to `GetCost`.
fn type_name(tool: &RegisteredTool) -> String {
    let last = tool.name.rsplit('.').next().unwrap_or(tool.name);
    let words = last.split('_').map(|word| {
        let mut letters = word.chars();
        letters.next().map_or(String::new(), |first| {
            first.to_uppercase().chain(letters).collect()
        })
    });
    words.collect()
}

fn is_needed(schema: &Value) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|names| !names.is_empty())
}

/// Returns an input with the fields that most callers set.
fn example(schema: &Value) -> Value {
    let all = [
        ("cluster", json!("lab")),
        ("rank", json!(17)),
        ("window", json!("1h")),
        (
            "sql",
            json!("SELECT rank, avg(wait_mean_ms) FROM collectives GROUP BY rank"),
        ),
    ];
    let known = all.into_iter().filter(|(name, _)| {
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = required.is_some_and(|names| names.contains(&json!(name)));
        // A rank is a filter where it is not required.
        is_required || (*name != "rank" && schema.pointer(&format!("/properties/{name}")).is_some())
    });
    known
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Returns the fields of an input as query parameters.
fn parameters(schema: &Value) -> Vec<Value> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &String| required.is_some_and(|names| names.contains(&json!(name)));
    let fields = schema.get("properties").and_then(Value::as_object);
    let parameter = |(name, field): (&String, &Value)| {
        let mut field = field.clone();
        let description = field
            .as_object_mut()
            .and_then(|field| field.remove("description"));
        json!({
            "name": name,
            "in": "query",
            "required": is_required(name),
            "description": description,
            "schema": field,
        })
    };
    fields.into_iter().flatten().map(parameter).collect()
}

/// Moves a schema and its definitions to `schemas`, under names that start with `name`, and returns
/// a reference to it.
fn hoist(schema: &Value, name: &str, schemas: &mut Map<String, Value>) -> Value {
    let mut schema = schema.clone();
    let mut definitions = None;
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$schema");
        definitions = fields.remove("$defs");
    }
    if let Some(Value::Object(definitions)) = definitions {
        for (inner, mut definition) in definitions {
            point_to(&mut definition, name);
            schemas.insert(format!("{name}.{inner}"), definition);
        }
    }
    point_to(&mut schema, name);
    schemas.insert(name.to_owned(), schema);
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Rewrites references to definitions that were moved.
fn point_to(schema: &mut Value, name: &str) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| point_to(item, name)),
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get_mut("$ref")
                && let Some(inner) = target.strip_prefix("#/$defs/")
            {
                *target = format!("#/components/schemas/{name}.{inner}");
            }
            fields.values_mut().for_each(|field| point_to(field, name));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
