//! The clusters that the caller may query, without the permission for SQL.

use axum::extract::State;
use axum::response::Response;
use serde_json::Value;

use crate::cluster_list::cluster_list;
use crate::http::HttpState;
use crate::http::tools::failed;
use crate::request_context::RequestContext;
use crate::response::success;

/// Name of the query in the audit log.
const NAME: &str = "clusters";

/// Most clusters in the list.
const MAX_CLUSTERS: usize = 10_000;

/// Lists the clusters with what reported in each, and its open incidents.
pub(super) async fn clusters(
    State(state): State<HttpState>,
    request_context: RequestContext,
) -> Response {
    let context = state.contexts.for_caller(&request_context.caller);
    let list = cluster_list(&state.registry, &context, MAX_CLUSTERS);
    let query = context.run_limited(list);
    match request_context.audited(NAME, &Value::Null, query).await {
        Ok(list) => success(list.to_string()),
        Err(error) => failed(NAME, &error, &request_context),
    }
}
