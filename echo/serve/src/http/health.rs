//! What probes ask.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use echo_tools::shard_hint;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::http::HttpState;
use crate::request_context::Asking;
use crate::response::success;

/// What decides, beside the store, whether Echo is ready.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// Set once Echo has been told to stop.
    pub stopping: watch::Receiver<bool>,
    /// How long a batch may wait for the writer; one that has waited longer will not be acknowledged.
    pub append_deadline: Duration,
}

/// That Echo runs, how much it has stored, and how much of that the detector has taken in: the numbers of the last
/// events, equal when the detector has caught up.
///
/// To whoever may not see everything only that it runs: how much comes in is about the others, too. Which of several Echos it
/// is, is told to all who may ask.
pub(super) async fn health(State(state): State<HttpState>, asking: Asking) -> Response {
    let context = state.contexts.usual();
    let mut answer = json!({ "status": "ok" });
    if asking.caller.sees_everything() {
        answer = json!({
            "status": "ok",
            "version": env!("CARGO_PKG_VERSION"),
            "events_committed": *context.store.committed().borrow(),
            "events_judged": *state.feeds.judged.borrow(),
            "now": context.clock.now().to_string(),
        });
    }
    if asking.caller.ask.is_some() {
        shard_hint::add_shard(context, &mut answer);
    }
    success(answer.to_string())
}

/// That the process lives.
pub(super) async fn alive() -> Response {
    success(json!({ "status": "ok" }).to_string())
}

/// Whether events are taken, and if not, why.
pub(super) async fn ready(State(state): State<HttpState>) -> Response {
    let reasons = reasons(&state);
    if reasons.is_empty() {
        success(readiness_body(&reasons).to_string())
    } else {
        not_ready(&reasons)
    }
}

/// Why no events are taken; nothing when they are. No question is put to the database: a crowd of questions is no reason
/// to send the agents elsewhere.
pub(super) fn reasons(state: &HttpState) -> Vec<(&'static str, String)> {
    let readiness = &state.feeds.readiness;
    let mut reasons = Vec::new();
    if *readiness.stopping.borrow() {
        let message = "Echo has been told to stop and finishes what is open";
        reasons.push(("shutting_down", message.to_owned()));
    }
    let store = &state.contexts.usual().store;
    let not_ready_reasons = store.not_ready_reasons();
    reasons.extend(
        not_ready_reasons
            .iter()
            .map(|one| (one.name(), one.to_string())),
    );
    let waited = store.vitals().oldest_wait;
    if let Some(waited) = waited.filter(|waited| *waited > readiness.append_deadline) {
        let waited_s = waited.as_secs();
        let message = format!("the writer has not answered for {waited_s} s");
        reasons.push(("writer_silent", message));
    }
    reasons
}

/// The answer to a probe that Echo takes no events, and why.
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
