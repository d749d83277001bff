//! SQL over HTTP, for whoever does not care for names of tools.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::json;

use crate::serve::http::answer::success;
use crate::serve::http::{HttpState, tools};
use crate::serve::request::RequestId;
use crate::tools::registry::Tool;
use crate::tools::run_analysis::RunAnalysis;
use crate::tools::views;

/// Runs one statement; the body is the input of the tool.
pub(super) async fn run(
    state: State<HttpState>,
    id: Extension<RequestId>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let name = Path(RunAnalysis::NAME.to_owned());
    tools::call(state, name, id, headers, body).await
}

/// Lists the views that can be asked about, with their columns.
pub(super) async fn views(State(state): State<HttpState>, id: Extension<RequestId>) -> Response {
    let context = &state.context;
    match context.bounded(views::views(context)).await {
        Ok(views) => success(json!({ "views": views }).to_string()),
        Err(error) => tools::failed("views", &error, &id),
    }
}
