//! What probes ask.

use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use tokio::time::timeout;

use crate::error::{Code, Coded, chain};
use crate::serve::http::{HttpState, failure, success};
use crate::tools::{ToolError, error_body};

/// That Echo runs, and how much it has stored.
pub(super) async fn health(State(state): State<HttpState>) -> Response {
    let last_event_id = *state.context.store.committed().borrow();
    let now = state.context.clock.now().to_string();
    success(json!({ "status": "ok", "last_event_id": last_event_id, "now": now }).to_string())
}

/// That the process lives.
pub(super) async fn alive() -> Response {
    success(json!({ "status": "ok" }).to_string())
}

/// That the store answers.
pub(super) async fn ready(State(state): State<HttpState>) -> Response {
    let deadline = state.context.limits.deadline;
    let answered = timeout(deadline, state.context.store.extent(None)).await;
    let problem = match answered {
        Ok(Ok(_extent)) => return alive().await,
        Ok(Err(error)) => ToolError::Store(error),
        Err(_elapsed) => ToolError::Timeout { deadline },
    };
    if problem.code() == Code::Internal {
        tracing::error!(error = chain(&problem), "the store gives no answer");
    }
    // To a probe every reason is the same: send nobody here for now.
    failure(
        Code::Busy,
        error_body(Code::Busy, "the store gives no answer"),
    )
}
