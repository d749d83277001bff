//! SQL over HTTP, without the name of the tool.

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
use crate::request_context::RequestContext;
use crate::response::success;

/// Runs one statement; the body is the input of the tool.
pub(super) async fn run(
    state: State<HttpState>,
    request_context: RequestContext,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let name = Path(RunAnalysis::NAME.to_owned());
    tools::call(state, name, request_context, headers, body).await
}

/// Lists the views that can be queried, with their columns.
pub(super) async fn views(
    State(state): State<HttpState>,
    request_context: RequestContext,
) -> Response {
    let views = async {
        // Requires permission for SQL.
        state
            .registry
            .find(&request_context.caller, RunAnalysis::NAME)?;
        let context = state.contexts.for_caller(&request_context.caller);
        context.run_limited(views::views(&context)).await
    };
    let views: Result<_, ToolError> = views.await;
    match views {
        Ok(views) => success(json!({ "views": views }).to_string()),
        Err(error) => tools::failed("views", &error, &request_context),
    }
}
