//! SQL over HTTP, for whoever does not care for names of tools.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use echo_tools::run_analysis::RunAnalysis;
use echo_tools::tool::Tool;
use echo_tools::{ToolError, views};
use serde_json::json;

use crate::http::{HttpState, tools};
use crate::request_context::Asking;
use crate::response::success;

/// Runs one statement; the body is the input of the tool.
pub(super) async fn run(
    state: State<HttpState>,
    asking: Asking,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let name = Path(RunAnalysis::NAME.to_owned());
    tools::call(state, name, asking, headers, body).await
}

/// Lists the views that can be asked about, with their columns.
pub(super) async fn views(State(state): State<HttpState>, asking: Asking) -> Response {
    let views = async {
        // Whoever may not ask in SQL has no use for them.
        state.registry.find(&asking.caller, RunAnalysis::NAME)?;
        let context = state.contexts.of(&asking.caller);
        context.run_limited(views::views(&context)).await
    };
    let views: Result<_, ToolError> = views.await;
    match views {
        Ok(views) => success(json!({ "views": views }).to_string()),
        Err(error) => tools::failed("views", &error, &asking),
    }
}
