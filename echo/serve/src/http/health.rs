//! Health endpoints.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use echo_tools::shard_hint;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::http::HttpState;
use crate::request_context::RequestContext;
use crate::response::success;

/// Inputs of the readiness check besides the store.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// Set when Echo is shutting down.
    pub stopping: watch::Receiver<bool>,
    /// Longest time that a batch may wait for the writer; later batches are not acknowledged.
    pub append_deadline: Duration,
}

/// Returns the status and the numbers of the last stored and the last analyzed event, which are
/// equal when the detector has caught up, after no event is queued.
///
/// The numbers cover all clusters, so they are returned only to callers that may query all. The
/// shard and the time, by which a client states ages, are returned to every caller that may query.
pub(super) async fn health(
    State(state): State<HttpState>,
    request_context: RequestContext,
) -> Response {
    let context = state.contexts.base();
    let mut answer = json!({ "status": "ok" });
    if request_context.caller.sees_everything() {
        answer = json!({
            "status": "ok",
            "version": env!("CARGO_PKG_VERSION"),
            // First, so that the numbers below contain what was queued before.
            "events_queued": context.store.vitals().queued_events,
            "events_committed": *context.store.committed().borrow(),
            "events_judged": *state.runtime.judged.borrow(),
        });
    }
    if request_context.caller.query.is_some() {
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("now".to_owned(), json!(context.clock.now().to_string()));
        }
        shard_hint::add_shard(context, &mut answer);
    }
    success(answer.to_string())
}

/// Returns that the process is alive.
pub(super) async fn live() -> Response {
    success(json!({ "status": "ok" }).to_string())
}

/// Returns whether events are accepted, and the reasons if not.
pub(super) async fn ready(State(state): State<HttpState>) -> Response {
    let reasons = reasons(&state);
    if reasons.is_empty() {
        success(readiness_body(&reasons).to_string())
    } else {
        not_ready(&reasons)
    }
}

/// Returns the reasons why events are not accepted; empty if they are. Does not query the database:
/// high query load is no reason to send agents to another instance.
pub(super) fn reasons(state: &HttpState) -> Vec<(&'static str, String)> {
    let readiness = &state.runtime.readiness;
    let mut reasons = Vec::new();
    if *readiness.stopping.borrow() {
        let message = "shutting down; open requests are being finished";
        reasons.push(("shutting_down", message.to_owned()));
    }
    let store = &state.contexts.base().store;
    let not_ready_reasons = store.not_ready_reasons();
    reasons.extend(
        not_ready_reasons
            .iter()
            .map(|one| (one.name(), one.to_string())),
    );
    let waited = store.vitals().oldest_wait;
    if let Some(waited) = waited.filter(|waited| *waited > readiness.append_deadline) {
        let waited_s = waited.as_secs();
        let message = format!("the writer has not responded for {waited_s} s");
        reasons.push(("writer_silent", message));
    }
    reasons
}

/// Returns the response of a failed readiness probe.
pub(super) fn not_ready(reasons: &[(&str, String)]) -> Response {
    let mut response = success(readiness_body(reasons).to_string());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

fn readiness_body(reasons: &[(&str, String)]) -> Value {
    let listed = reasons
        .iter()
        .map(|(reason, message)| json!({ "reason": reason, "message": message }));
    json!({ "ready": reasons.is_empty(), "reasons": listed.collect::<Vec<_>>() })
}
