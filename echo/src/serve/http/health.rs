//! What probes ask.

use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use tokio::time::timeout;

use crate::error::{Code, Coded, chain};
use crate::serve::http::{HttpState, failure, success};
use crate::tools::{ToolError, error_body};

/// That Echo runs, how much it has stored, and how much of that the detector has taken in: the numbers of the last
/// events, equal when the detector has caught up.
pub(super) async fn health(State(state): State<HttpState>) -> Response {
    let events_committed = *state.context.store.committed().borrow();
    let events_judged = *state.judged.borrow();
    let answer = json!({
        "status": "ok",
        "events_committed": events_committed,
        "events_judged": events_judged,
        "now": state.context.clock.now().to_string(),
    });
    success(answer.to_string())
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
