//! Readiness responses.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use echo_core::clock::SystemClock;
use echo_tools::fixture;
use echo_tools::fixture::broken::Broken;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{send, service, service_that_stops};
use crate::http::startup::{current_router, startup_router};
use crate::middleware::Middleware;

async fn probed(service: &Router, path: &str) -> (u16, Value) {
    let request = Request::get(path).header("host", "127.0.0.1:8081");
    send(service.clone(), request.body(Body::empty()).unwrap()).await
}

/// Returns the names of the reasons, and checks that the probe failed.
async fn reasons(service: &Router) -> Vec<String> {
    let (status, body) = probed(service, "/readyz").await;
    assert_eq!((status, &body["ready"]), (503, &json!(false)), "{body}");
    let reasons = body["reasons"].as_array().unwrap();
    assert!(reasons.iter().all(|one| one["message"].is_string()));
    let words = reasons.iter().map(|one| one["reason"].as_str().unwrap());
    words.map(str::to_owned).collect()
}

#[tokio::test]
async fn an_instance_that_accepts_events_is_ready() {
    let service = service(fixture::context().await);
    let ready = json!({ "ready": true, "reasons": [] });
    assert_eq!(probed(&service, "/readyz").await, (200, ready));
}

#[tokio::test]
async fn readiness_names_what_prevents_events_from_being_accepted() {
    for (store, reason) in [
        (Broken::Closed, "store_closed"),
        (Broken::Defect, "store_failed"),
        (Broken::Silent, "writer_silent"),
    ] {
        let service = service(fixture::context_over(Arc::new(store)));
        assert_eq!(reasons(&service).await, [reason]);
        assert_eq!(probed(&service, "/healthz").await.0, 200);
    }
}

#[tokio::test]
async fn readiness_lists_all_reasons_with_shutdown_first() {
    let (stop, stopping) = watch::channel(false);
    let service = service_that_stops(fixture::context_over(Arc::new(Broken::Closed)), stopping);
    assert_eq!(reasons(&service).await, ["store_closed"]);
    stop.send_replace(true);
    assert_eq!(reasons(&service).await, ["shutting_down", "store_closed"]);
}

#[tokio::test]
async fn a_starting_instance_is_alive_but_not_ready() {
    let (routes, current) = watch::channel(startup_router(&Middleware::without_auth(Arc::new(
        SystemClock,
    ))));
    let front = current_router(current);
    assert_eq!(reasons(&front).await, ["starting"]);
    assert_eq!(probed(&front, "/healthz").await.0, 200);
    let (status, body) = probed(&front, "/api/v1/tools/list").await;
    assert_eq!((status, &body["error"]["code"]), (503, &json!("busy")));
    assert!(body["error"]["request_id"].is_string(), "{body}");
    drop(routes.send_replace(service(fixture::context().await)));
    assert_eq!(probed(&front, "/readyz").await.0, 200);
    assert_eq!(probed(&front, "/api/v1/tools/list").await.0, 200);
}
