use echo_access::{Kind, Principal};
use echo_tools::registry::Registry;
use serde_json::Value;

use super::document;

#[test]
fn the_document_matches_its_snapshot() {
    insta::assert_json_snapshot!(
        "openapi",
        document(&Registry::standard(), &Principal::local())
    );
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
        serde_json::json!([{ "bearer": [] }])
    );
    let document = document(&registry, &Principal::local());
    assert_eq!(document["security"], serde_json::json!([]));
}
