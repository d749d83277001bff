//! Shards: each answers for its own clusters and names the shards of the others.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Router;
use echo_core::shard::Shard;
use echo_tools::fixture;
use echo_tools::registry::Registry;
use echo_tools::{ToolContext, shard_hint};
use serde_json::{Value, json};

use super::tenants::{OWNER, TENANT, rpc, send, two_clusters};
use super::{feeds, router};
use crate::auth::tests::Site;
use crate::http::metrics::Metrics;

/// Shard of `lab`; `prod` belongs to the first of three shards, as does `cluster-7`.
const LAB: &str = "shard 2 at https://echo-2.lab:8081";

const OTHERS: &str =
    "this is shard 0 of 3, other clusters are at https://echo-1.lab:8081, https://echo-2.lab:8081";

/// Returns the context of one of three shards.
fn of_shard(ordinal: u32, context: ToolContext) -> ToolContext {
    let three = NonZeroU32::new(3).unwrap();
    let shard = Shard::new(ordinal, three, "https://echo-{shard}.lab:8081/");
    ToolContext {
        shard: shard.map(Arc::new),
        ..context
    }
}

/// Returns a router with authentication.
fn echo(context: ToolContext) -> (Router, Site) {
    let site = Site::with_tokens(&[TENANT, OWNER]);
    let feeds = (feeds(), Metrics::default());
    let echo = router(Registry::standard(), context, feeds, &site.middleware);
    (echo, site)
}

/// Returns the first shard and a token with all permissions.
async fn first() -> (Router, String) {
    let (echo, site) = echo(of_shard(0, fixture::context().await));
    (echo, site.tokens[1].clone())
}

/// Returns the response as JSON, or as the text of a page.
async fn send_json(echo: &Router, token: &str, request: (&str, &str, Value)) -> (u16, Value) {
    let (status, text) = send(echo, token, request).await;
    let (_headers, body) = text.split_once('\n').unwrap();
    let body = serde_json::from_str(body).unwrap_or_else(|_| json!(body));
    (status, body)
}

#[tokio::test]
async fn a_cluster_of_another_shard_is_not_found_with_a_hint() {
    let (echo, token) = first().await;
    for tool in Registry::standard().tools() {
        if tool.needs_sql {
            continue;
        }
        for (cluster, hint) in [("lab", LAB), ("cluster-7", "(known: prod)")] {
            let mut input = json!({ "cluster": cluster });
            if tool.name.ends_with("explain_rank") {
                input["rank"] = json!(2);
            }
            let path = format!("/api/v1/tools/{}", tool.name);
            let (status, body) = send_json(&echo, &token, ("POST", &path, input.clone())).await;
            let message = body["error"]["message"].as_str().unwrap();
            assert_eq!((status, &body["error"]["code"]), (404, &json!("not_found")));
            assert!(message.contains(hint), "{message}");
            assert_eq!(message.contains("shard"), cluster == "lab", "{message}");
            let call = rpc(
                "tools/call",
                json!({ "name": tool.name, "arguments": input }),
            );
            let (_, body) = send_json(&echo, &token, ("POST", "/mcp", call)).await;
            assert!(body["result"].to_string().contains(hint), "{body}");
        }
    }
    for path in [
        "/api/v1/threshold?cluster_id=lab",
        "/api/v1/cost.csv?day=2026-06-01&open=true&cluster=lab",
    ] {
        let (status, body) = send_json(&echo, &token, ("GET", path, Value::Null)).await;
        let message = body["error"]["message"].as_str().unwrap();
        assert!(status == 404 && message.contains(LAB), "{message}");
    }
    let threshold = "/api/v1/threshold?cluster_id=cluster-7";
    let (_, body) = send_json(&echo, &token, ("GET", threshold, Value::Null)).await;
    let usual = "no node of cluster cluster-7 has reported yet";
    assert_eq!(body["error"]["message"], usual);
}

#[tokio::test]
async fn answers_about_all_clusters_name_the_other_shards_and_keep_their_notes() {
    let (echo, token) = first().await;
    for tool in ["find_outlier_nodes", "get_cost"] {
        let path = format!("/api/v1/tools/fleet.cluster.{tool}");
        let note_of = async |input: Value| {
            let (status, answer) = send_json(&echo, &token, ("POST", &path, input)).await;
            assert_eq!(status, 200, "{answer}");
            answer["data_quality"]["note"].clone()
        };
        assert_eq!(note_of(json!({ "window": "all" })).await, OTHERS);
        let own = json!({ "window": "all", "cluster": "prod" });
        assert_eq!(note_of(own).await, Value::Null);
        let empty = json!({ "from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z" });
        let both = note_of(empty).await;
        let both = both.as_str().unwrap();
        assert!(both.starts_with("no events in this window; "), "{both}");
        assert!(both.ends_with(&format!("; {OTHERS}")), "{both}");
    }
    let report = "/api/v1/cost.json?day=2026-06-01&open=true";
    let (_, body) = send_json(&echo, &token, ("GET", report, Value::Null)).await;
    assert_eq!(body["metadata"]["note"], OTHERS);
    let report = format!("{report}&cluster=prod");
    let (_, body) = send_json(&echo, &token, ("GET", &report, Value::Null)).await;
    assert_eq!(body["metadata"].get("note"), None);
}

#[tokio::test]
async fn history_from_before_resharding_is_returned_with_a_hint() {
    let (echo, site) = echo(of_shard(1, fixture::context().await));
    let path = "/api/v1/tools/fleet.cluster.get_cost";
    let input = json!({ "window": "all", "cluster": "prod" });
    let (status, answer) = send_json(&echo, &site.tokens[1], ("POST", path, input)).await;
    assert_eq!(status, 200, "{answer}");
    let note = answer["data_quality"]["note"].as_str().unwrap();
    let message = "cluster prod belongs to shard 0 at https://echo-0.lab:8081; this answer covers only the events sent to this shard";
    assert_eq!(note, message);
}

#[tokio::test]
async fn shard_hints_do_not_reveal_whether_a_cluster_exists() {
    for ordinal in 0..3 {
        let mut message = Vec::new();
        for context in [two_clusters().await, fixture::context().await] {
            let (echo, site) = echo(of_shard(ordinal, context));
            for path in [
                "/api/v1/tools/fleet.cluster.get_cost?cluster=hidden-fleet",
                "/api/v1/threshold?cluster_id=hidden-fleet",
                "/api/v1/cost.csv?day=2026-06-01&open=true&cluster=hidden-fleet",
            ] {
                let request = ("GET", path, Value::Null);
                let (status, body) = send_json(&echo, &site.tokens[0], request).await;
                message.push((status, body["error"]["message"].clone()));
            }
        }
        assert_eq!(message[..3], message[3..]);
        assert!(
            message.iter().all(|(status, _)| *status == 404),
            "{message:?}"
        );
    }
}

#[tokio::test]
async fn health_clusters_and_pages_name_the_shard() {
    let (echo, site) = echo(of_shard(0, two_clusters().await));
    let shard =
        json!({ "ordinal": 0, "count": 3, "url": "https://echo-{shard}.lab:8081", "note": OTHERS });
    let read = rpc("resources/read", json!({ "uri": "echo://clusters" }));
    for token in &site.tokens {
        let health = ("GET", "/api/v1/health", Value::Null);
        let (_, health) = send_json(&echo, token, health).await;
        assert_eq!(health["shard"], shard);
        let (_, body) = send_json(&echo, token, ("POST", "/mcp", read.clone())).await;
        let text = body["result"]["contents"][0]["text"].as_str().unwrap();
        let clusters: Value = serde_json::from_str(text).unwrap();
        assert_eq!(clusters["shard"], shard);
        let (status, page) = send(&echo, token, ("GET", "/", Value::Null)).await;
        assert_eq!(status, 200);
        assert!(page.contains("This is shard 0 of 3."), "{page}");
        assert!(
            page.contains(r#"<a href="https://echo-2.lab:8081/">shard 2</a>"#),
            "{page}"
        );
    }
    let (_, health) = send_json(
        &echo,
        "echo_unknown",
        ("GET", "/api/v1/health", Value::Null),
    )
    .await;
    assert_eq!(health.get("shard"), None, "{health}");
}

#[tokio::test]
async fn a_token_for_clusters_of_other_shards_gets_a_hint() {
    let (echo, site) = echo(of_shard(0, fixture::empty()));
    let path = "/api/v1/tools/fleet.cluster.get_cost";
    let (status, body) = send_json(&echo, &site.tokens[0], ("POST", path, json!({}))).await;
    let message = body["error"]["message"].as_str().unwrap();
    assert_eq!(status, 400);
    assert!(message.contains(OTHERS), "{message}");
}

#[tokio::test]
async fn a_single_instance_gives_no_shard_hints() {
    let mut answer = json!({ "status": "ok" });
    shard_hint::add_shard(&fixture::context().await, &mut answer);
    assert_eq!(answer, json!({ "status": "ok" }));
}
