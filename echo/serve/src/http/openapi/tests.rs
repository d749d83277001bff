use echo_access::{Kind, Principal};
use echo_tools::registry::Registry;
use echo_tools::registry::schema_diff::{first_difference, resolved};
use serde_json::{Value, json};

use super::document;

/// Returns the fields of an input as query parameters.
fn parameters(input: &Value) -> Value {
    let required = input["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|names| names.contains(&json!(name)));
    let fields = input["properties"].as_object().unwrap().iter();
    let parameter = |(name, field): (&String, &Value)| {
        let mut schema = field.clone();
        let description = schema.as_object_mut().unwrap().remove("description");
        json!({
            "name": name,
            "in": "query",
            "required": is_required(name),
            "description": description,
            "schema": schema,
        })
    };
    // A query has `format` instead.
    let fields = fields.filter(|(name, _)| *name != "plot");
    fields.map(parameter).collect()
}

/// Returns whether a query parameter is a field of the input.
fn is_field(parameter: &Value) -> bool {
    parameter["name"] != "format"
}

/// Returns the document with one line per schema and parameter of a tool, which another test
/// compares, and per error.
fn outline(mut document: Value) -> Value {
    for (name, schema) in document["components"]["schemas"].as_object_mut().unwrap() {
        if name != "Error" {
            *schema = json!("as in the registry");
        }
    }
    for (path, operations) in document["paths"].as_object_mut().unwrap() {
        for operation in operations.as_object_mut().unwrap().values_mut() {
            let parameters = operation
                .get_mut("parameters")
                .and_then(Value::as_array_mut);
            let of_tool = parameters.filter(|_| path.starts_with("/api/v1/tools/"));
            for parameter in of_tool.into_iter().flatten().filter(|one| is_field(one)) {
                *parameter = parameter["name"].take();
            }
            let responses = operation["responses"].as_object_mut().unwrap();
            responses.values_mut().for_each(shorten_error);
        }
    }
    document
}

/// Replaces a response that has only a description and the body of every error by the description.
fn shorten_error(response: &mut Value) {
    let body = json!({ "schema": { "$ref": "#/components/schemas/Error" } });
    let description = response["description"].clone();
    let error = json!({ "description": description, "content": { "application/json": body } });
    if *response == error {
        *response = description;
    }
}

#[test]
fn the_outline_of_the_document_matches_its_snapshot() {
    let document = document(&Registry::standard(), &Principal::local());
    insta::assert_json_snapshot!("openapi", outline(document));
}

#[test]
fn every_tool_has_the_schemas_of_the_registry() {
    let (registry, caller) = (Registry::standard(), Principal::local());
    let document = document(&registry, &caller);
    let body = |part: &Value| {
        let reference = &part["content"]["application/json"]["schema"];
        resolved(reference, &document)["$ref"].take()
    };
    for tool in registry.tools() {
        let path = &document["paths"][format!("/api/v1/tools/{}", tool.name)];
        let input = resolved(&tool.input_schema, &tool.input_schema);
        let answer = resolved(&tool.output_schema, &tool.output_schema);
        let (get, post) = (&path["get"], &path["post"]);
        let found = get["parameters"].as_array().unwrap().iter();
        let found = found.filter(|one| is_field(one)).cloned().collect();
        for (part, expected, found) in [
            ("parameters", &parameters(&input), found),
            ("body", &input, body(&post["requestBody"])),
            ("answer", &answer, body(&post["responses"]["200"])),
            ("answer to GET", &answer, body(&get["responses"]["200"])),
        ] {
            let difference = first_difference(expected, &found);
            assert_eq!(difference, None, "{} {part}", tool.name);
        }
    }
}

#[test]
fn references_resolve_and_operation_ids_are_unique() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|field| references(field, found));
            }
            _ => {}
        }
    }
    let document = document(&Registry::standard(), &Principal::local());
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20);
    for target in found {
        let path = target.strip_prefix('#').unwrap();
        assert!(document.pointer(path).is_some(), "{target}");
    }
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|path| path.as_object().unwrap().values());
    let mut names: Vec<&str> = operations
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn the_document_requires_a_token_where_authentication_is_enabled() {
    let registry = Registry::standard();
    let known = Principal {
        kind: Kind::Opaque,
        ..Principal::local()
    };
    assert_eq!(
        document(&registry, &known)["security"],
        json!([{ "bearer": [] }])
    );
    let document = document(&registry, &Principal::local());
    assert_eq!(document["security"], json!([]));
}
