//! Forms of requests: query or body, names of tools, request ids.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use echo_tools::fixture;
use echo_tools::registry::Registry;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{JSON, code, get_json, request_json, send, service};

const HISTORY: &str = "/api/v1/tools/fleet.cluster.event_history";

async fn send_json(echo: &Router, request: Request<Body>) -> (u16, HeaderMap, Value) {
    let response = echo.clone().oneshot(request).await;
    let (parts, body) = response.unwrap().into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    (parts.status.as_u16(), parts.headers, body)
}

#[tokio::test]
async fn query_parameters_are_parsed_by_the_schema() {
    let input = json!({ "cluster": "prod", "rank": 2, "limit": 3, "from": "now-3m" });
    let posted = request_json("POST", HISTORY, JSON, &input.to_string()).await;
    let query = "cluster=prod&rank=2&limit=3.0&from=now-3m";
    assert_eq!(get_json(&format!("{HISTORY}?{query}")).await, posted);
    assert_eq!(posted.0, 200);
}

#[tokio::test]
async fn repeated_query_parameters_are_rejected() {
    let (status, body) = get_json(&format!("{HISTORY}?cluster=a&cluster=b&rank=x")).await;
    assert_eq!((status, code(&body)), (400, "invalid"));
    let details = body["error"]["details"].as_array().unwrap();
    let pointers: Vec<&str> = details
        .iter()
        .map(|one| one["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(pointers, ["/cluster", "/rank"], "{body}");
}

#[tokio::test]
async fn unsupported_methods_are_rejected_with_allow() {
    let echo = service(fixture::context().await);
    for (method, path, allowed) in [
        ("DELETE", HISTORY, "GET,HEAD,POST"),
        ("POST", "/api/v1/tools/list", "GET,HEAD"),
        ("PATCH", "/metrics", "GET,HEAD"),
        ("GET", "/mcp", "POST"),
        ("DELETE", "/mcp/compat", "POST"),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        let (status, headers, body) = send_json(&echo, request.body(Body::empty()).unwrap()).await;
        assert_eq!((status, code(&body)), (405, "wrong_method"), "{path}");
        let listed = headers["allow"].to_str().unwrap().replace(' ', "");
        assert_eq!(listed, allowed, "{path}");
    }
}

#[tokio::test]
async fn every_response_has_a_request_id_and_errors_repeat_it() {
    let echo = service(fixture::context().await);
    let request = |given: &str| {
        Request::get("/api/v1/tools/nothing")
            .header("x-request-id", given)
            .body(Body::empty())
            .unwrap()
    };
    let (_, headers, body) = send_json(&echo, request("job-7.a_b")).await;
    assert_eq!(headers["x-request-id"], "job-7.a_b");
    assert_eq!(body["error"]["request_id"], "job-7.a_b");
    for given in ["", "a b", "<script>", &"x".repeat(65)] {
        let (_, headers, body) = send_json(&echo, request(given)).await;
        let id = headers["x-request-id"].to_str().unwrap().to_owned();
        assert_ne!(id, given);
        assert_eq!(body["error"]["request_id"], json!(id));
    }
    let (_, headers, _) =
        send_json(&echo, Request::get("/healthz").body(Body::empty()).unwrap()).await;
    assert_eq!(headers["x-request-id"].len(), 16);
}

#[tokio::test]
async fn pages_of_other_origins_are_rejected_unless_allowed() {
    let echo = service(fixture::context().await);
    for (origin, expected) in [
        ("http://127.0.0.1:8081", 200),
        ("https://grafana.lab:3000", 200),
        ("https://grafana.lab", 403),
        ("http://127.0.0.1:9999", 403),
        ("https://attacker.example", 403),
        ("null", 403),
    ] {
        for path in ["/healthz", "/api/v1/health"] {
            let request = Request::get(path)
                .header("host", "127.0.0.1:8081")
                .header("origin", origin)
                .body(Body::empty());
            let (status, _) = send(echo.clone(), request.unwrap()).await;
            assert_eq!(status, expected, "{origin}");
        }
    }
}

#[tokio::test]
async fn protocol_errors_have_the_standard_error_body() {
    let echo = service(fixture::context().await);
    for (kind, accept, body, expected) in [
        (
            "text/plain",
            "application/json, text/event-stream",
            "{}".to_owned(),
            (415, "wrong_type"),
        ),
        (JSON, "text/html", "{}".to_owned(), (406, "invalid")),
        (
            JSON,
            "application/json, text/event-stream",
            format!("\"{}\"", "x".repeat(70_000)),
            (413, "too_large"),
        ),
    ] {
        let request = Request::post("/mcp")
            .header("host", "localhost")
            .header("content-type", kind)
            .header("accept", accept)
            .body(Body::from(body));
        let (status, _, body) = send_json(&echo, request.unwrap()).await;
        assert_eq!((status, code(&body)), expected, "{body}");
    }
}

#[tokio::test]
async fn every_documented_operation_is_served() {
    let echo = service(fixture::context().await);
    let document = get_json("/api/v1/openapi.json").await.1;
    let paths = document["paths"].as_object().unwrap();
    let mut seen = 0;
    for (path, operations) in paths {
        for method in operations.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            let request = Request::builder()
                .method(method.as_str())
                .uri(path)
                .header("host", "localhost");
            let (status, _, _) = send_json(&echo, request.body(Body::empty()).unwrap()).await;
            // An input is optional, the path is not.
            assert!(matches!(status, 200 | 400), "{method} {path}: {status}");
            seen += 1;
        }
    }
    assert_eq!(seen, 2 * Registry::standard().tools().len() + 16);
}
