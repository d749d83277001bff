//! Answers as pictures.

use axum::body::{Body, to_bytes};
use axum::http::Request;
use echo_tools::fixture;
use serde_json::json;
use tower::ServiceExt;

use super::{JSON, asked, code, got, service};

const EXPLAIN: &str = "/api/v1/tools/fleet.cluster.explain_rank";
const RANK: &str = "cluster=prod&rank=2";

/// Status, content type and body.
async fn sent(method: &str, path: &str, body: &str) -> (u16, String, Vec<u8>) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", JSON)
        .body(Body::from(body.to_owned()));
    let response = service(fixture::context().await)
        .oneshot(request.unwrap())
        .await
        .unwrap();
    let kind = response.headers()["content-type"].to_str().unwrap();
    let kind = kind.to_owned();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, kind, body.to_vec())
}

#[tokio::test]
async fn a_picture_is_answered_as_what_it_is() {
    for (format, kind, beginning) in [
        ("svg", "image/svg+xml", b"<svg role=\"img\" ".as_slice()),
        ("png", "image/png", b"\x89PNG\r\n\x1a\n"),
    ] {
        let input = json!({ "cluster": "prod", "rank": 2, "plot": format }).to_string();
        let by_format = sent("GET", &format!("{EXPLAIN}?{RANK}&format={format}"), "").await;
        let (status, found, body) = &by_format;
        assert_eq!((*status, found.as_str()), (200, kind));
        assert!(body.starts_with(beginning));
        let by_plot = sent("GET", &format!("{EXPLAIN}?{RANK}&plot={format}"), "").await;
        assert_eq!(by_plot, by_format);
        assert_eq!(sent("POST", EXPLAIN, &input).await, by_format);
        let alias = format!(
            "{}?{RANK}&format={format}",
            EXPLAIN.replace("fleet.cluster.", "fleet_cluster_")
        );
        assert_eq!(sent("GET", &alias, "").await, by_format);
    }
}

#[tokio::test]
async fn json_is_the_usual_form_and_may_be_asked_for() {
    let usual = got(&format!("{EXPLAIN}?{RANK}")).await;
    assert_eq!(usual.0, 200);
    assert_eq!(got(&format!("{EXPLAIN}?{RANK}&format=json")).await, usual);
    let absent = json!({ "cluster": "prod", "rank": 2, "plot": null }).to_string();
    assert_eq!(asked("POST", EXPLAIN, JSON, &absent).await, usual);
}

#[tokio::test]
async fn an_unknown_form_is_invalid_and_the_known_ones_are_named() {
    for (query, pointer, known) in [
        ("format=pdf", "/format", "json, png, svg"),
        ("format=", "/format", "json, png, svg"),
        ("plot=json", "/plot", "\"png\" or \"svg\""),
        ("format=svg&plot=svg", "/format", "give only one of them"),
    ] {
        let (status, body) = got(&format!("{EXPLAIN}?{RANK}&{query}")).await;
        assert_eq!((status, code(&body)), (400, "invalid"), "{query}");
        let detail = &body["error"]["details"][0];
        assert_eq!(detail["pointer"], pointer, "{query}: {body}");
        let message = detail["message"].as_str().unwrap();
        assert!(message.contains(known), "{query}: {message}");
    }
    let cost = "/api/v1/tools/fleet.cluster.get_cost?format=svg";
    let (status, body) = got(cost).await;
    assert_eq!((status, code(&body)), (400, "invalid"), "it draws nothing");
    assert_eq!(body["error"]["details"][0]["pointer"], "/format");
}

#[tokio::test]
async fn an_error_stays_json_whatever_was_asked_for() {
    let (status, body) = got(&format!("{EXPLAIN}?cluster=pord&rank=2&format=svg")).await;
    assert_eq!((status, code(&body)), (404, "not_found"));
    let (status, body) = got("/api/v1/tools/reboot?format=svg").await;
    assert_eq!((status, code(&body)), (404, "not_found"));
}
