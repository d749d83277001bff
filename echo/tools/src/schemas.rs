//! Schemas of inputs and answers as strict clients take them.

use std::borrow::Cow;

use echo_core::ids::MAX_NAME_BYTES;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// Any printable name: no control character, which would corrupt logs and answers.
const NAME: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]+$";

/// Schema of a name of a node, a job, a metric or an operation.
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

/// Schema of the name of a cluster. Clients of the Model Context Protocol repeat it in a header, by which whoever stands
/// before several Echos can choose one without reading bodies.
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

/// Schema of an input, which says all that is taken without a word: `T or null` is plain `T`, because absent says the
/// same as null and some clients take one type only.
pub(super) fn input_schema<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    without_null(&mut schema);
    schema
}

/// Schema of an answer.
pub(super) fn output_schema<T: JsonSchema>() -> Value {
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
