use serde_json::Value;

use super::document;
use crate::tools::registry::Registry;

#[test]
fn the_document_is_what_clients_were_told() {
    insta::assert_json_snapshot!("openapi", document(&Registry::standard()));
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own() {
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
    let document = document(&Registry::standard());
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
