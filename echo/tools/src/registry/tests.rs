use std::sync::Arc;
use std::time::Duration;

use echo_core::error::{Code, Coded};
use echo_core::model::event::{BatchKey, Origin};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::schema_diff::{first_difference, resolved};
use super::{RegisteredTool, Registry, Tool};
use crate::fixture;
use crate::scope::Scope;
use crate::{ToolContext, ToolError};

/// A tool that never returns.
#[derive(Debug, Deserialize, JsonSchema)]
struct Endless {}

impl Tool for Endless {
    const NAME: &'static str = "test.endless";
    const TITLE: &'static str = "Endless";
    const DESCRIPTION: &'static str = "Never answers.";
    type Answer = String;

    async fn call(self, _scope: &Scope<'_>) -> Result<String, ToolError> {
        std::future::pending().await
    }
}

/// Input with the required fields of a tool.
fn required_input(tool: &RegisteredTool) -> Value {
    let all = [
        ("cluster", json!("prod")),
        ("rank", json!(2)),
        // Answers contain the execution time; a refusal is always the same.
        ("sql", json!("DELETE FROM events")),
    ];
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.contains(&json!(name)));
    let needed = all.into_iter().filter(|(name, _)| is_required(name));
    let needed: Map<String, Value> = needed
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    Value::Object(needed)
}

async fn call_error(context: &ToolContext, name: &str, input: Value) -> ToolError {
    let answer = Registry::standard().dispatch(context, name, input).await;
    answer.unwrap_err()
}

#[test]
fn the_schemas_match_the_snapshots() {
    let registry = Registry::standard();
    for tool in registry.tools() {
        insta::assert_json_snapshot!(
            tool.alias(),
            json!({
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "input": tool.input_schema,
                "output": tool.output_schema,
            })
        );
    }
}

#[test]
fn every_input_has_its_fields_at_the_root() {
    for tool in Registry::standard().tools() {
        let fields = tool.input_schema["properties"].as_object();
        assert!(fields.is_some_and(|fields| fields.len() > 2), "{tool:?}");
        assert_eq!(tool.input_schema["additionalProperties"], false, "{tool:?}");
    }
}

#[test]
fn the_first_difference_of_two_schemas_is_reported_with_its_path() {
    let inner = json!({ "type": "array", "items": [{ "maximum": 5 }] });
    let with_reference = json!({ "$ref": "#/$defs/Row", "$defs": { "Row": inner } });
    let moved = json!({ "rows": { "Tool.Row": inner } });
    let expected = resolved(&with_reference, &with_reference);
    let mut found = resolved(&json!({ "$ref": "#/rows/Tool.Row" }), &moved);
    assert_eq!(first_difference(&expected, &found), None);
    found["$ref"]["items"][0]["maximum"] = json!(6);
    let difference = first_difference(&expected, &found);
    assert_eq!(
        difference.unwrap(),
        "/$ref/items/0/maximum: 5 expected, 6 found"
    );
    found["$ref"].as_object_mut().unwrap().remove("items");
    let difference = first_difference(&expected, &found);
    assert_eq!(
        difference.unwrap(),
        "/$ref/items: [{\"maximum\":5}] expected, nothing found"
    );
}

#[test]
fn names_are_short_and_plain_enough_for_every_client() {
    for tool in Registry::standard().tools() {
        let alias = tool.alias();
        assert!(alias.len() <= 50, "{alias}");
        assert!(
            alias.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{alias}"
        );
    }
}

#[tokio::test]
async fn an_alias_calls_the_same_tool() {
    let (context, registry) = (fixture::context().await, Registry::standard());
    for tool in registry.tools() {
        let input = required_input(tool);
        let dotted = registry.dispatch(&context, tool.name, input.clone()).await;
        let alias = registry.dispatch(&context, &tool.alias(), input).await;
        assert_eq!(
            dotted.map_err(|error| error.body()),
            alias.map_err(|error| error.body())
        );
    }
}

#[tokio::test]
async fn an_unknown_tool_is_not_found_and_the_error_lists_the_known_ones() {
    let context = fixture::empty();
    let error = call_error(&context, "fleet.cluster.reboot", json!({})).await;
    assert_eq!(error.code(), Code::NotFound);
    assert!(
        error.to_string().contains("fleet.cluster.get_cost"),
        "{error}"
    );
}

#[tokio::test]
async fn every_invalid_input_is_rejected_with_its_field() {
    let (context, history) = (fixture::context().await, "fleet.cluster.event_history");
    for (input, field) in [
        (json!({ "clustre": "prod" }), "/clustre"),
        (json!({ "cluster": "" }), "/cluster"),
        (json!({ "cluster": "\u{e4}".repeat(200) }), "/cluster"),
        (json!({ "rank": -1 }), "/rank"),
        (json!({ "rank": "two" }), "/rank"),
        (json!({ "rank": 4_294_967_296_u64 }), "/rank"),
        (json!({ "limit": 0 }), "/limit"),
        (json!({ "limit": 1001 }), "/limit"),
        (json!({ "from": "yesterday" }), "/from"),
        (json!({ "from": "2026-02-30T00:00:00Z" }), "/from"),
        (json!({ "from": "now", "to": "now-1h" }), "/from"),
        (json!({ "window": "all", "to": "now" }), "/window"),
        (json!({ "window": "1 fortnight" }), "/window"),
        (json!({ "cursor": "x" }), "/cursor"),
        (json!({ "node": "a\nb" }), "/node"),
        (json!([]), ""),
    ] {
        let error = call_error(&context, history, input.clone()).await;
        assert_eq!(error.code(), Code::Invalid, "{input}: {error}");
        let body = error.body();
        assert_eq!(
            body["error"]["details"][0]["pointer"].as_str().unwrap(),
            field,
            "{input}: {body}"
        );
    }
}

#[tokio::test]
async fn an_unknown_cluster_is_not_found_and_the_error_lists_the_known_ones() {
    let (context, registry) = (fixture::context().await, Registry::standard());
    let about_clusters = registry
        .tools()
        .iter()
        .filter(|tool| tool.input_schema.pointer("/properties/cluster").is_some());
    for tool in about_clusters {
        let mut input = required_input(tool);
        input["cluster"] = json!("pord");
        let error = call_error(&context, tool.name, input.clone()).await;
        assert_eq!(error.code(), Code::NotFound);
        let message = r#"no such cluster: "pord"; did you mean "prod"? (known: prod)"#;
        assert_eq!(error.to_string(), message);
        input["cluster"] = json!("lab");
        let error = call_error(&context, tool.name, input).await;
        assert_eq!(error.to_string(), r#"no such cluster: "lab" (known: prod)"#);
    }
}

#[tokio::test]
async fn a_tool_about_one_cluster_needs_its_name_only_if_there_are_several() {
    let (context, registry) = (fixture::context().await, Registry::standard());
    let explain = "fleet.cluster.explain_rank";
    let without_name = json!({ "rank": 2 });
    let answer = registry.dispatch(&context, explain, without_name.clone());
    let answer: Value = serde_json::from_str(&answer.await.unwrap().text).unwrap();
    assert_eq!(answer["cluster"], "prod");
    let mut second = fixture::batch(0..1, 0..=5);
    second.key = BatchKey::Content(2);
    for event in &mut second.events {
        event.origin = Arc::new(Origin {
            cluster: "lab".parse().unwrap(),
            ..(*event.origin).clone()
        });
    }
    context.store.append(second).await.unwrap();
    let error = call_error(&context, explain, without_name).await;
    assert_eq!(error.to_string(), "cluster: is required: one of lab, prod");
}

#[tokio::test]
async fn a_window_without_a_unit_is_answered_with_one_that_has_it() {
    let context = fixture::empty();
    for input in [json!({ "window": "15" }), json!({ "window": 15 })] {
        let error = call_error(&context, "fleet.cluster.get_cost", input).await;
        let message = r#"window: "15" has no unit; give one, such as 15m"#;
        assert_eq!(error.to_string(), message);
    }
}

#[tokio::test]
async fn integers_may_be_written_with_a_decimal_point() {
    let (context, registry) = (fixture::context().await, Registry::standard());
    let name = "fleet.cluster.event_history";
    let plain = registry
        .dispatch(&context, name, json!({ "rank": 2, "limit": 3 }))
        .await;
    let pointed = registry
        .dispatch(&context, name, json!({ "rank": 2.0, "limit": 3.0 }))
        .await;
    assert_eq!(plain.unwrap(), pointed.unwrap());
}

#[tokio::test]
async fn numbers_of_every_tool_may_be_written_as_text() {
    let (context, registry) = (fixture::context().await, Registry::standard());
    let has_limit = |tool: &&RegisteredTool| tool.input_schema.to_string().contains("\"limit\"");
    let with_limit: Vec<_> = registry.tools().iter().filter(has_limit).collect();
    assert_eq!(with_limit.len(), 8);
    for tool in with_limit {
        let call = |limit: Value| {
            let input = json!({ "limit": limit });
            registry.dispatch(&context, tool.name, input)
        };
        assert_eq!(
            call(json!("3")).await.unwrap(),
            call(json!(3)).await.unwrap()
        );
    }
}

#[tokio::test]
async fn a_tool_call_has_a_deadline() {
    let mut registry = Registry::default();
    registry.register::<Endless>();
    let mut context = fixture::empty();
    context.limits.deadline = Duration::ZERO;
    let error = registry
        .dispatch(&context, "test.endless", json!({}))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Timeout);
}
