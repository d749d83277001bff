use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use echo_tools::fixture;
use echo_tools::registry::Registry;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::auth::tests::Site;
use crate::http::health::Readiness;
use crate::http::metrics::Metrics;
use crate::http::{RuntimeState, router};

const ALL: &str = "id: cron, query: { clusters: [\"*\"], sql: true }";

/// Returns a router with authentication and its only token.
async fn echo() -> (Router, Site) {
    let site = Site::with_tokens(&[ALL]);
    let feeds = RuntimeState {
        judged: tokio::sync::watch::channel(0).1,
        policies: tokio::sync::watch::channel(Arc::default()).1,
        readiness: Readiness {
            stopping: tokio::sync::watch::channel(false).1,
            append_deadline: Duration::from_secs(10),
        },
    };
    let feeds = (feeds, Metrics::default());
    let context = fixture::context().await;
    (
        router(Registry::standard(), context, feeds, &site.middleware),
        site,
    )
}

fn post(site: &Site, path: &str, body: &Value) -> Request<Body> {
    Request::post(path)
        .header("host", "127.0.0.1:8081")
        .header("authorization", format!("Bearer {}", site.tokens[0]))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("user-agent", "cron/1.0 \u{9b}31m")
        .body(Body::from(body.to_string()))
        .unwrap()
}

#[tokio::test]
async fn every_query_is_logged_with_caller_input_and_outcome() {
    let (echo, site) = echo().await;
    let call = |name: &str, input: Value| {
        json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": name, "arguments": input },
        })
    };
    for (input, outcome) in [
        (json!({ "cluster": "prod" }), "ok"),
        (json!({ "cluster": "pord" }), "not_found"),
        (json!({ "clusters": 5 }), "invalid"),
    ] {
        let tool = "fleet.cluster.get_cost";
        let path = format!("/api/v1/tools/{tool}");
        for request in [
            post(&site, &path, &input),
            post(&site, "/mcp", &call(tool, input.clone())),
        ] {
            echo.clone().oneshot(request).await.unwrap();
            let line = site.log.lines().pop().unwrap();
            assert_eq!(line["tool"], tool, "{line}");
            assert_eq!(line["input"], input, "{line}");
            assert_eq!(line["outcome"], outcome, "{line}");
            assert_eq!(line["principal"], "cron", "{line}");
            assert!(line["duration_ms"].as_f64().is_some(), "{line}");
            assert!(!line.to_string().contains(&site.tokens[0]), "{line}");
        }
    }
    assert_eq!(site.log.lines().len(), 6);
}

#[tokio::test]
async fn sql_is_logged_with_its_hash_and_truncated() {
    let (echo, site) = echo().await;
    let sql = format!("SELECT 1 -- {}", "x".repeat(9_000));
    let request = post(&site, "/api/v1/sql", &json!({ "sql": sql }));
    echo.oneshot(request).await.unwrap();
    let line = site.log.lines().pop().unwrap();
    assert_eq!(line["sql_sha256"].as_str().unwrap().len(), 64);
    assert_eq!(line["input_truncated"], true);
    assert!(line.to_string().len() < 4_000);
}

#[tokio::test]
async fn rejected_requests_are_logged() {
    let (echo, site) = echo().await;
    let large = post(
        &site,
        "/api/v1/tools/fleet.cluster.get_cost",
        &json!("x".repeat(70_000)),
    );
    let mut foreign = post(&site, "/api/v1/sql", &json!({}));
    foreign
        .headers_mut()
        .insert("host", "attacker.example".parse().unwrap());
    let nowhere = post(&site, "/api/v2", &json!({}));
    for (request, outcome) in [
        (large, "too_large"),
        (foreign, "forbidden"),
        (nowhere, "not_found"),
    ] {
        echo.clone().oneshot(request).await.unwrap();
        assert_eq!(site.log.lines().pop().unwrap()["outcome"], outcome);
    }
    assert_eq!(site.log.lines().len(), 3);
}

#[tokio::test]
async fn a_cancelled_request_is_logged_once() {
    let site = Site::with_tokens(&[ALL]);
    let routes = Router::new().route("/slow", get(pending::<()>));
    let service = site.middleware.wrap(routes);
    let mut request = post(&site, "/slow", &json!({}));
    *request.method_mut() = axum::http::Method::GET;
    let answer = tokio::time::timeout(Duration::from_millis(1), service.oneshot(request));
    assert!(answer.await.is_err());
    let lines = site.log.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["outcome"], &lines[0]["status"]),
        (&json!("cancelled"), &Value::Null)
    );
    assert_eq!(lines[0]["principal"], "cron");
}
