//! SQL over HTTP, for whoever does not care for names of tools.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};

use crate::error::{Coded, chain};
use crate::serve::http::answer::{failure, success};
use crate::serve::http::{HttpState, tools};
use crate::serve::request::RequestId;
use crate::store::sql::ViewDocs;
use crate::tools::ToolError;
use crate::tools::registry::Tool;
use crate::tools::run_analysis::RunAnalysis;

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
pub(super) async fn views(State(state): State<HttpState>) -> Response {
    match state.context.store.views().await {
        Ok(views) => {
            let views: Vec<Value> = views.iter().map(json).collect();
            success(json!({ "views": views }).to_string())
        }
        Err(error) => {
            let error = ToolError::Store(error);
            tracing::error!(error = chain(&error), "the views could not be listed");
            failure(error.code(), error.body())
        }
    }
}

/// What is to be known of a view.
pub(in crate::serve) fn json(view: &ViewDocs) -> Value {
    let columns = view.columns.iter().map(
        |column| json!({ "name": column.name, "type": column.kind, "comment": column.comment }),
    );
    let columns: Vec<Value> = columns.collect();
    json!({ "name": view.name, "comment": view.comment, "columns": columns })
}
