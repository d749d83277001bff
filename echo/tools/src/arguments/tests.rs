use serde_json::{Value, json};

use super::{InputValidator, MAX_EXCERPT, MAX_VIOLATIONS};
use crate::ToolError;

fn validator() -> InputValidator {
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

fn violations(input: Value) -> Vec<(String, String)> {
    match validator().validate(input) {
        Err(ToolError::Invalid(violations)) => violations
            .into_iter()
            .map(|one| (one.pointer, one.message))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn equivalent_values_are_converted() {
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
        assert_eq!(validator().validate(fields).unwrap(), parsed);
    }
}

#[test]
fn a_string_field_accepts_no_conversion() {
    let (pointer, message) = &violations(json!({ "name": "5" }))[0];
    assert_eq!(pointer, "/name");
    assert_eq!(message, "\"5\" is invalid; expected: Small letters.");
}

#[test]
fn all_violations_are_reported_with_their_pointers() {
    let input = json!({ "count": 10, "share": [], "deep": "perhaps", "nmae": null, "c/d~": 1 });
    let mut pointers: Vec<String> = violations(input)
        .into_iter()
        .map(|(pointer, _)| pointer)
        .collect();
    pointers.sort();
    assert_eq!(
        pointers,
        ["/count", "/c~1d~0", "/deep", "/name", "/nmae", "/share"]
    );
}

#[test]
fn an_unknown_field_is_reported_with_the_known_ones() {
    let found = violations(json!({ "name": "a", "nmae": "b" }));
    let message = "unknown field (known: a/b, count, deep, name, share, when)";
    assert_eq!(found, [("/nmae".to_owned(), message.to_owned())]);
}

#[test]
fn an_input_that_is_not_an_object_is_rejected() {
    for input in [json!(null), json!([]), json!("name"), json!(1), json!(true)] {
        assert_eq!(violations(input)[0].0, "");
    }
}

#[test]
fn errors_quote_only_an_excerpt_of_the_input() {
    let long = format!("\u{1b}[31m{}", "x".repeat(10_000));
    for input in [
        json!({ "name": long }),
        json!({ "name": "a", "count": long }),
        json!({ "name": "a", "share": [long] }),
    ] {
        for (pointer, message) in violations(input) {
            assert!(
                message.chars().count() < MAX_EXCERPT + 80,
                "{pointer}: {message}"
            );
            assert!(!message.contains('\u{1b}'));
        }
    }
}

#[test]
fn an_invalid_schema_has_no_validator() {
    assert!(InputValidator::new(&json!({ "type": "nothing" })).is_none());
}

#[test]
fn the_number_of_reported_violations_is_limited() {
    let fields = (0..9_000).map(|number| (format!("x{number}"), json!(0)));
    let violations = violations(Value::Object(fields.collect()));
    assert_eq!(violations.len(), MAX_VIOLATIONS + 1);
    assert_eq!(violations.last().unwrap().1, "further violations omitted");
}
