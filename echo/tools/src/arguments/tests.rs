use serde_json::{Value, json};

use super::{InputValidator, MAX_EXCERPT, MAX_VIOLATIONS};
use crate::ToolError;

fn arguments() -> InputValidator {
    let schema = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name"],
        "properties": {
            "name": { "type": "string", "pattern": "^[a-z]+$", "description": "Small letters." },
            "count": { "type": "integer", "minimum": 1, "maximum": 9 },
            "share": { "type": "number" },
            "deep": { "type": "boolean" },
            "when": { "anyOf": [{ "type": "string", "pattern": "^now$" }, { "type": "integer" }] },
            "a/b": { "type": "string" },
        },
    });
    InputValidator::new(&schema).unwrap()
}

fn wrong(input: Value) -> Vec<(String, String)> {
    match arguments().validate(input) {
        Err(ToolError::Invalid(violations)) => violations
            .into_iter()
            .map(|one| (one.pointer, one.message))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_means_the_same_is_taken_in_other_forms() {
    for (fields, parsed) in [
        (json!({ "count": 3.0 }), json!({ "count": 3 })),
        (json!({ "count": "3" }), json!({ "count": 3 })),
        (json!({ "count": "3.0" }), json!({ "count": 3 })),
        (json!({ "share": "0.5" }), json!({ "share": 0.5 })),
        (json!({ "deep": "true" }), json!({ "deep": true })),
        (json!({ "when": "7" }), json!({ "when": 7 })),
        (json!({ "when": "now" }), json!({ "when": "now" })),
        (json!({ "count": null, "deep": null }), json!({})),
    ] {
        let (mut fields, mut parsed) = (fields, parsed);
        fields["name"] = json!("a");
        parsed["name"] = json!("a");
        assert_eq!(arguments().validate(fields).unwrap(), parsed);
    }
}

#[test]
fn a_text_that_looks_like_a_number_stays_a_text() {
    let (pointer, message) = &wrong(json!({ "name": "5" }))[0];
    assert_eq!(pointer, "/name");
    assert_eq!(message, "\"5\" is invalid; expected: Small letters.");
}

#[test]
fn everything_that_is_wrong_is_said_at_once_with_its_place() {
    let input = json!({ "count": 10, "share": [], "deep": "perhaps", "nmae": null, "c/d~": 1 });
    let mut places: Vec<String> = wrong(input).into_iter().map(|(place, _)| place).collect();
    places.sort();
    assert_eq!(
        places,
        ["/count", "/c~1d~0", "/deep", "/name", "/nmae", "/share"]
    );
}

#[test]
fn an_unknown_field_is_told_the_known_ones() {
    let wrong = wrong(json!({ "name": "a", "nmae": "b" }));
    let message = "unknown field (known: a/b, count, deep, name, share, when)";
    assert_eq!(wrong, [("/nmae".to_owned(), message.to_owned())]);
}

#[test]
fn what_is_no_object_is_refused_as_a_whole() {
    for input in [json!(null), json!([]), json!("name"), json!(1), json!(true)] {
        assert_eq!(wrong(input)[0].0, "");
    }
}

#[test]
fn errors_repeat_little_of_what_was_sent() {
    let long = format!("\u{1b}[31m{}", "x".repeat(10_000));
    for input in [
        json!({ "name": long }),
        json!({ "name": "a", "count": long }),
        json!({ "name": "a", "share": [long] }),
    ] {
        for (place, message) in wrong(input) {
            assert!(
                message.chars().count() < MAX_EXCERPT + 80,
                "{place}: {message}"
            );
            assert!(!message.contains('\u{1b}'));
        }
    }
}

#[test]
fn what_is_no_schema_is_not_used() {
    assert!(InputValidator::new(&json!({ "type": "nothing" })).is_none());
}

#[test]
fn a_heap_of_mistakes_is_told_in_few_words() {
    let fields = (0..9_000).map(|number| (format!("x{number}"), json!(0)));
    let violations = wrong(Value::Object(fields.collect()));
    assert_eq!(violations.len(), MAX_VIOLATIONS + 1);
    assert_eq!(violations.last().unwrap().1, "further violations omitted");
}
