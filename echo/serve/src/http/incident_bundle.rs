//! Everything that is known of an incident over HTTP, as an archive.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use echo_core::error::Code;
use echo_tools::error_body;
use echo_tools::incident_bundle::IncidentBundle;
use serde_json::json;

use crate::http::HttpState;
use crate::http::tools::failed;
use crate::request_context::RequestContext;
use crate::response::failure;

/// Name of the query in the audit log.
const NAME: &str = "incident_bundle";

/// Returns the archive as a file to save.
pub(super) async fn archive(
    State(state): State<HttpState>,
    request_context: RequestContext,
    params: Result<Query<IncidentBundle>, QueryRejection>,
) -> Response {
    let bundle = match params {
        Ok(Query(bundle)) => bundle,
        Err(rejection) => {
            let body = error_body(Code::Invalid, &rejection.body_text());
            return failure(Code::Invalid, body);
        }
    };
    let input = json!({ "cluster": bundle.cluster, "incident": bundle.incident });
    let context = state.contexts.for_caller(&request_context.caller);
    let query = Box::pin(bundle.archive(&state.registry, &context));
    match request_context.audited(NAME, &input, query).await {
        Ok(found) => {
            let name = format!("attachment; filename=\"{}\"", found.file_name());
            let headers = [
                (CONTENT_TYPE, HeaderValue::from_static("application/gzip")),
                (CACHE_CONTROL, HeaderValue::from_static("no-store")),
            ];
            let mut response = (headers, found.bytes).into_response();
            if let Ok(value) = HeaderValue::from_str(&name) {
                response.headers_mut().insert(CONTENT_DISPOSITION, value);
            }
            response
        }
        Err(error) => failed(NAME, &error, &request_context),
    }
}
