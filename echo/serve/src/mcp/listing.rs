//! Tools as listed to a model, with as few tokens as possible.
//!
//! Lists omit details that a model does not need for a valid call: patterns of names and times
//! beyond their descriptions, and the nested structure of answers. The full schemas are in
//! `echo://schema`, in `echo://host-schema` and in the OpenAPI document, and arguments are validated
//! against them.

use std::sync::Arc;

use echo_tools::registry::RegisteredTool;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use crate::mcp::ToolNames;

/// Returns a tool under its listed name.
pub(super) fn tool(tool: &RegisteredTool, names: ToolNames) -> Tool {
    let name = match names {
        ToolNames::Dotted => tool.name.to_owned(),
        ToolNames::Plain => tool.alias(),
    };
    let mut listed = Tool::default();
    listed.name = name.into();
    listed.title = Some(tool.title.to_owned());
    listed.description = Some(tool.description.into());
    listed.input_schema = Arc::new(input(&tool.input_schema));
    listed.output_schema = Some(Arc::new(output(&tool.output_schema)));
    listed.annotations = Some(ToolAnnotations::new().read_only(true).open_world(false));
    listed
}

/// Returns the fields with types and descriptions. A field of text or number is listed as text.
fn input(schema: &Value) -> JsonObject {
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flatten().map(|(name, field)| {
        let mut listed = Map::new();
        let kind = field
            .get("type")
            .cloned()
            .unwrap_or_else(|| json!("string"));
        listed.insert("type".to_owned(), kind);
        for part in ["description", "enum", "items", "x-mcp-header"] {
            if let Some(value) = field.get(part) {
                listed.insert(part.to_owned(), value.clone());
            }
        }
        (name.clone(), Value::Object(listed))
    });
    let mut listed = object(fields.collect());
    listed.insert("additionalProperties".to_owned(), json!(false));
    if let Some(required) = schema.get("required") {
        listed.insert("required".to_owned(), required.clone());
    }
    listed
}

/// Returns the top-level fields of the answer with their types; fields of any type are omitted.
fn output(schema: &Value) -> JsonObject {
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flatten();
    object(
        fields
            .filter_map(|(name, field)| Some((name.clone(), kind(schema, field)?)))
            .collect(),
    )
}

/// Returns the type of a field. Alternatives are listed as `anyOf`, because some clients accept
/// only a single `type`.
fn kind(schema: &Value, field: &Value) -> Option<Value> {
    if let Some(target) = field.get("$ref").and_then(Value::as_str) {
        return kind(schema, schema.pointer(target.trim_start_matches('#'))?);
    }
    if let Some(variants) = field.get("anyOf").and_then(Value::as_array) {
        let kinds = variants.iter().map(|variant| kind(schema, variant));
        return Some(json!({ "anyOf": kinds.collect::<Option<Vec<_>>>()? }));
    }
    match field.get("type")? {
        Value::Array(kinds) => {
            let kinds = kinds.iter().map(|kind| json!({ "type": kind }));
            Some(json!({ "anyOf": kinds.collect::<Vec<_>>() }))
        }
        kind => Some(json!({ "type": kind })),
    }
}

fn object(properties: Map<String, Value>) -> JsonObject {
    let mut listed = JsonObject::new();
    listed.insert("type".to_owned(), json!("object"));
    listed.insert("properties".to_owned(), Value::Object(properties));
    listed
}
