//! JSON schemas of inputs and answers, in a form that strict clients accept.

use std::borrow::Cow;

use echo_core::ids::MAX_NAME_BYTES;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// Pattern of printable names: control characters would corrupt logs and answers.
const NAME: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]+$";

/// Schema of the name of a node, job, metric or operation.
#[derive(Debug)]
pub struct Name;

impl JsonSchema for Name {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Name")
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_NAME_BYTES, "pattern": NAME })
    }
}

/// Schema of the name of a cluster. Clients of the Model Context Protocol repeat it in a header, so
/// that a proxy can route to a shard without reading bodies.
#[derive(Debug)]
pub struct ClusterName;

impl JsonSchema for ClusterName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("ClusterName")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Name::json_schema(generator);
        schema.insert("x-mcp-header".to_owned(), "Cluster".into());
        schema
    }
}

/// Returns the schema of an input. `T or null` becomes plain `T`: absent means the same as null,
/// and some clients support a single type only.
pub fn input_schema<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    remove_null_types(&mut schema);
    schema
}

/// Returns the schema of an answer.
pub(super) fn output_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    simplify(&mut schema);
    schema
}

/// Removes keywords that strict clients reject: number formats of Rust, and null defaults.
fn simplify(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        if fields.get("format").is_some_and(Value::is_string) {
            fields.remove("format");
        }
        if fields.get("default") == Some(&Value::Null) {
            fields.remove("default");
        }
    }
    for_each_child(schema, simplify);
}

fn remove_null_types(schema: &mut Value) {
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
    for_each_child(schema, remove_null_types);
}

fn for_each_child(schema: &mut Value, change: fn(&mut Value)) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(change),
        Value::Object(fields) => fields.values_mut().for_each(change),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
