//! Answers as pictures.

use axum::body::{Body, to_bytes};
use axum::http::Request;
use echo_tools::fixture;
use serde_json::json;
use tower::ServiceExt;

use super::{JSON, code, get_json, request_json, service};

const EXPLAIN: &str = "/api/v1/tools/fleet.cluster.explain_rank";
const RANK: &str = "cluster=prod&rank=2";

/// Status, content type and body.
async fn send(method: &str, path: &str, body: &str) -> (u16, String, Vec<u8>) {
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
async fn pictures_have_their_media_type() {
    for (format, kind, beginning) in [
        ("svg", "image/svg+xml", b"<svg role=\"img\" ".as_slice()),
        ("png", "image/png", b"\x89PNG\r\n\x1a\n"),
    ] {
        let input = json!({ "cluster": "prod", "rank": 2, "plot": format }).to_string();
        let by_format = send("GET", &format!("{EXPLAIN}?{RANK}&format={format}"), "").await;
        let (status, found, body) = &by_format;
        assert_eq!((*status, found.as_str()), (200, kind));
        assert!(body.starts_with(beginning));
        let by_plot = send("GET", &format!("{EXPLAIN}?{RANK}&plot={format}"), "").await;
        assert_eq!(by_plot, by_format);
        assert_eq!(send("POST", EXPLAIN, &input).await, by_format);
        let alias = format!(
            "{}?{RANK}&format={format}",
            EXPLAIN.replace("fleet.cluster.", "fleet_cluster_")
        );
        assert_eq!(send("GET", &alias, "").await, by_format);
    }
}

#[tokio::test]
async fn json_is_the_default_format_and_can_be_requested() {
    let usual = get_json(&format!("{EXPLAIN}?{RANK}")).await;
    assert_eq!(usual.0, 200);
    assert_eq!(
        get_json(&format!("{EXPLAIN}?{RANK}&format=json")).await,
        usual
    );
    let absent = json!({ "cluster": "prod", "rank": 2, "plot": null }).to_string();
    assert_eq!(request_json("POST", EXPLAIN, JSON, &absent).await, usual);
}

#[tokio::test]
async fn an_unknown_format_is_rejected_with_the_known_ones() {
    for (query, pointer, known) in [
        ("format=pdf", "/format", "json, png, svg"),
        ("format=", "/format", "json, png, svg"),
        ("plot=json", "/plot", "\"png\" or \"svg\""),
        ("format=svg&plot=svg", "/format", "give only one of them"),
    ] {
        let (status, body) = get_json(&format!("{EXPLAIN}?{RANK}&{query}")).await;
        assert_eq!((status, code(&body)), (400, "invalid"), "{query}");
        let detail = &body["error"]["details"][0];
        assert_eq!(detail["pointer"], pointer, "{query}: {body}");
        let message = detail["message"].as_str().unwrap();
        assert!(message.contains(known), "{query}: {message}");
    }
    let cost = "/api/v1/tools/fleet.cluster.get_cost?format=svg";
    let (status, body) = get_json(cost).await;
    assert_eq!((status, code(&body)), (400, "invalid"), "it draws nothing");
    assert_eq!(body["error"]["details"][0]["pointer"], "/format");
}

#[tokio::test]
async fn errors_are_json_in_every_format() {
    let (status, body) = get_json(&format!("{EXPLAIN}?cluster=pord&rank=2&format=svg")).await;
    assert_eq!((status, code(&body)), (404, "not_found"));
    let (status, body) = get_json("/api/v1/tools/reboot?format=svg").await;
    assert_eq!((status, code(&body)), (404, "not_found"));
}
