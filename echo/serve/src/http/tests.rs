use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use echo_core::error::Coded;
use echo_core::policy_table::{HealthThreshold, PolicyTable};
use echo_tools::ToolContext;
use echo_tools::fixture;
use echo_tools::fixture::broken::Broken;
use echo_tools::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;

use super::health::Readiness;
use super::metrics::Metrics;
use super::{RuntimeState, router};
use crate::middleware::Middleware;
use crate::origin::OriginPolicy;
use crate::request::MAX_BODY_BYTES;

const JSON: &str = "application/json";

mod crowd;
mod pages;
mod pictures;
mod readiness;
mod recurrence;
mod requests;
mod scrapes;
mod shards;
mod tenants;

fn service(context: ToolContext) -> Router {
    service_that_stops(context, watch::channel(false).1)
}

fn feeds() -> RuntimeState {
    feeds_that_stop(watch::channel(false).1)
}

fn feeds_that_stop(stopping: watch::Receiver<bool>) -> RuntimeState {
    let mut table = PolicyTable::default();
    table.set_health("prod".parse().unwrap(), HealthThreshold::example(0.75));
    table.set_health(
        "hidden-fleet".parse().unwrap(),
        HealthThreshold::example(0.75),
    );
    RuntimeState {
        judged: watch::channel(480).1,
        policies: watch::channel(Arc::new(table)).1,
        readiness: Readiness {
            stopping,
            append_deadline: Duration::from_secs(10),
        },
    }
}

fn service_that_stops(context: ToolContext, stopping: watch::Receiver<bool>) -> Router {
    let origins = OriginPolicy::new(
        vec!["echo.lab".to_owned()],
        vec!["https://grafana.lab:3000".to_owned()],
    );
    let middleware = Middleware {
        origins,
        ..Middleware::without_auth(Arc::clone(&context.clock))
    };
    let feeds = (feeds_that_stop(stopping), Metrics::default());
    router(Registry::standard(), context, feeds, &middleware)
}

async fn send(service: Router, request: Request<Body>) -> (u16, Value) {
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], JSON);
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(body.last(), Some(&b'\n'));
    (status, serde_json::from_slice(&body).unwrap())
}

async fn request_json(method: &str, path: &str, content_type: &str, body: &str) -> (u16, Value) {
    let echo = service(fixture::context().await);
    request_from(&echo, (method, path), content_type, body).await
}

async fn request_from(
    echo: &Router,
    (method, path): (&str, &str),
    content_type: &str,
    body: &str,
) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("host", "127.0.0.1:8081")
        .body(Body::from(body.to_owned()));
    send(echo.clone(), request.unwrap()).await
}

async fn get_json(path: &str) -> (u16, Value) {
    request_json("GET", path, JSON, "").await
}

fn code(body: &Value) -> &str {
    body.pointer("/error/code")
        .and_then(Value::as_str)
        .unwrap_or("none")
}

#[tokio::test]
async fn the_versions_name_the_paths_of_tools_and_sql() {
    let (_, versions) = get_json("/api/versions").await;
    assert_eq!(versions["experimental"], json!([]));
    let tools = get_json(versions["tools_endpoint"].as_str().unwrap()).await;
    assert_eq!(tools.0, 200);
    assert_eq!(tools, get_json("/api/v1/tools/list").await);
    let (status, views) = get_json(versions["sql_endpoint"].as_str().unwrap()).await;
    assert_eq!((status, views["views"].is_array()), (200, true));
}

#[tokio::test]
async fn every_tool_returns_the_registrys_answer_over_http() {
    let (context, registry) = (fixture::context().await, Registry::standard());
    let echo = service(context.clone());
    for tool in registry.tools() {
        for mut input in [
            json!({}),
            json!({ "window": "all", "cluster": "prod" }),
            json!({ "from": "now-3m" }),
        ] {
            if tool.input_schema.get("required").is_some() {
                input["cluster"] = json!("prod");
                input["rank"] = json!(2);
            }
            // Answers contain their duration; errors are identical every time.
            if tool.input_schema.pointer("/properties/sql").is_some() {
                input = json!({ "sql": "DELETE FROM events" });
            }
            let answer = match registry.dispatch(&context, tool.name, input.clone()).await {
                Ok(answer) => (200, serde_json::from_str(&answer.text).unwrap()),
                Err(error) => (error.code().http(), error.body()),
            };
            for name in [tool.name.to_owned(), tool.alias()] {
                let path = format!("/api/v1/tools/{name}");
                let (status, mut body) =
                    request_from(&echo, ("POST", &path), JSON, &input.to_string()).await;
                if let Some(Value::Object(error)) = body.get_mut("error") {
                    // Request ids differ between requests.
                    error.remove("request_id");
                }
                assert_eq!((status, body), answer.clone());
            }
        }
    }
}

#[tokio::test]
async fn every_error_has_its_status_and_a_remedy() {
    let cost = "/api/v1/tools/fleet.cluster.get_cost";
    let form = "application/x-www-form-urlencoded";
    let long = format!("{{\"cluster\":\"{}\"}}", "x".repeat(MAX_BODY_BYTES));
    let echo = service(fixture::context().await);
    let mut table = String::new();
    for (method, path, content_type, body) in [
        ("POST", cost, JSON, "{"),
        ("POST", cost, JSON, "[]"),
        (
            "POST",
            cost,
            JSON,
            r#"{"clustre":"prod","limit":"many","from":[]}"#,
        ),
        ("POST", cost, JSON, r#"{"from":"2262-04-11T23:47:16Z"}"#),
        ("POST", cost, JSON, r#"{"cluster":"pord"}"#),
        ("POST", cost, form, "{}"),
        ("POST", cost, JSON, long.as_str()),
        ("POST", "/api/v1/tools/reboot", JSON, "{}"),
        ("PUT", cost, JSON, ""),
        ("GET", "/nowhere", JSON, ""),
        ("DELETE", "/api/v1/tools/list", JSON, ""),
    ] {
        let (status, body) = request_from(&echo, (method, path), content_type, body).await;
        let message = body["error"]["message"].as_str().unwrap_or_default();
        writeln!(table, "{status} {} {message}", code(&body)).unwrap();
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn an_empty_body_is_the_empty_input() {
    let path = "/api/v1/tools/fleet.cluster.get_cost";
    let (status, answer) = request_json("POST", path, "text/plain", "").await;
    assert_eq!(status, 200);
    assert_eq!(
        answer,
        request_json("POST", path, "application/json; charset=utf-8", "{}")
            .await
            .1
    );
}

#[tokio::test]
async fn the_list_and_the_versions_come_from_the_registry() {
    let (_, list) = get_json("/api/v1/tools/list").await;
    let (_, versions) = get_json("/api/versions").await;
    let names: Vec<&Value> = list["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(json!(names), versions["tools"]);
    assert_eq!(names.len(), Registry::standard().tools().len());
    assert_eq!(versions["api"], json!(["v1"]));
}

#[tokio::test]
async fn probes_respond() {
    for path in ["/healthz", "/api/v1/health"] {
        let (status, body) = get_json(path).await;
        assert_eq!((status, &body["status"]), (200, &json!("ok")), "{path}");
    }
    let health = get_json("/api/v1/health").await.1;
    assert_eq!(
        (&health["events_committed"], &health["events_judged"]),
        (&json!(484), &json!(480))
    );
}

#[tokio::test]
async fn the_health_threshold_is_returned_per_cluster() {
    let (status, known) = get_json("/api/v1/threshold?cluster_id=prod").await;
    assert_eq!(status, 200);
    assert_eq!(
        known,
        json!({
            "cluster_id": "prod", "threshold": 0.75, "quorum_met": true, "nodes_reporting": 5, "nodes_needed": 5,
            "k": 3.5, "ema_alpha": 0.2, "policy_version": null, "computed_at": "2020-01-01T00:00:00.000Z",
        })
    );
    let request = Request::get("/api/v1/threshold?cluster_id=prod");
    let request = request.body(Body::empty()).unwrap();
    let response = service(fixture::context().await).oneshot(request).await;
    let response = response.unwrap();
    assert_eq!(response.headers()["x-ingero-threshold"], "0.75");
    assert_eq!(response.headers()["x-ingero-quorum-met"], "true");
    for (path, expected) in [
        ("/api/v1/threshold?cluster_id=pord", 404),
        ("/api/v1/threshold", 400),
        ("/api/v1/threshold?cluster_id=", 400),
    ] {
        let (status, body) = get_json(path).await;
        assert_eq!(status, expected, "{path}: {body}");
    }
}

#[tokio::test]
async fn an_unknown_host_name_is_rejected() {
    let echo = service(fixture::empty());
    for (host, expected) in [
        ("localhost:8081", 200),
        ("echo.lab", 200),
        ("ECHO.lab:8081", 200),
        ("grafana.lab", 403),
        ("127.0.0.1", 200),
        ("[::1]:8081", 200),
        ("echo.attacker.example", 403),
        ("localhost.attacker.example:8081", 403),
        ("127.0.0.1.attacker.example", 403),
    ] {
        let request = Request::builder()
            .uri("/healthz")
            .header("host", host)
            .body(Body::empty());
        let (status, _) = send(echo.clone(), request.unwrap()).await;
        assert_eq!(status, expected, "{host}");
    }
}

#[tokio::test]
async fn store_errors_are_internal_except_a_closed_store() {
    for (store, expected) in [
        (
            Broken::Defect,
            (
                500,
                "internal",
                "internal error; see the log of Echo for the cause",
            ),
        ),
        (Broken::Closed, (503, "busy", "the store is closed")),
        (
            Broken::Silent,
            (
                504,
                "timeout",
                "the query exceeded its deadline of 0 s; use a shorter window",
            ),
        ),
    ] {
        let mut context = fixture::context_over(Arc::new(store));
        if matches!(store, Broken::Silent) {
            context.limits.deadline = Duration::ZERO;
        }
        let request = |method: &str, path: &str| {
            Request::builder()
                .method(method)
                .uri(path)
                .body(Body::empty())
                .unwrap()
        };
        let call = request("POST", "/api/v1/tools/fleet.cluster.event_history");
        let (status, body) = send(service(context.clone()), call).await;
        let message = body["error"]["message"].as_str().unwrap();
        assert_eq!((status, code(&body), message), expected);
        assert_eq!(
            send(service(context.clone()), request("GET", "/readyz"))
                .await
                .0,
            503
        );
        assert_eq!(
            send(service(context), request("GET", "/healthz")).await.0,
            200
        );
    }
}

#[tokio::test]
async fn a_scrape_is_openmetrics_text_for_clients_that_accept_it_and_prometheus_text_for_others() {
    let service = service(fixture::context().await);
    for (accept, kind, last) in [
        ("*/*", "text/plain; version=0.0.4", "\n"),
        ("text/plain", "text/plain; version=0.0.4", "\n"),
        (
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0",
            "# EOF\n",
        ),
    ] {
        let request = Request::builder()
            .uri("/metrics")
            .header("host", "127.0.0.1:8081")
            .header("accept", accept);
        let request = request.body(Body::empty()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let served = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(served.starts_with(kind), "{served}");
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.ends_with(last), "{text}");
        assert!(
            text.contains("# TYPE echo_cluster_coverage_ratio gauge\n"),
            "{text}"
        );
    }
}
