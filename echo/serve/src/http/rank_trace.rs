//! The trace of a rank over HTTP, for ui.perfetto.dev.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_DISPOSITION;
use axum::response::Response;
use echo_core::error::Code;
use echo_tools::error_body;
use echo_tools::rank_trace::RankTrace;
use serde_json::json;

use crate::http::HttpState;
use crate::http::tools::failed;
use crate::request_context::RequestContext;
use crate::response::{failure, success};

/// Name of the query in the audit log.
const NAME: &str = "rank_trace";

/// Returns the trace as a file to save.
pub(super) async fn json(
    State(state): State<HttpState>,
    request_context: RequestContext,
    params: Result<Query<RankTrace>, QueryRejection>,
) -> Response {
    let trace = match params {
        Ok(Query(trace)) => trace,
        Err(rejection) => {
            let body = error_body(Code::Invalid, &rejection.body_text());
            return failure(Code::Invalid, body);
        }
    };
    let input = json!({ "cluster": trace.cluster, "rank": trace.rank, "job": trace.job });
    let context = state.contexts.for_caller(&request_context.caller);
    let query = Box::pin(trace.json(&state.registry, &context));
    match request_context.audited(NAME, &input, query).await {
        Ok(json) => {
            let mut response = success(json);
            let name = format!("attachment; filename=\"rank-{}.json\"", trace.rank);
            if let Ok(value) = HeaderValue::from_str(&name) {
                response.headers_mut().insert(CONTENT_DISPOSITION, value);
            }
            response
        }
        Err(error) => failed(NAME, &error, &request_context),
    }
}
