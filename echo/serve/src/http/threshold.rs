//! Health score thresholds for Ingero agents, for clients that poll.

use axum::extract::{Query, State};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use echo_core::error::Code;
use echo_core::ids::ClusterId;
use echo_tools::error_body;
use fleet_proto::metadata;
use serde::Deserialize;
use serde_json::json;

use crate::http::HttpState;
use crate::request_context::RequestContext;
use crate::response::{failure, success};

/// Cluster to return.
#[derive(Debug, Deserialize)]
pub(super) struct ThresholdQuery {
    cluster_id: Option<String>,
}

/// Returns the threshold of a cluster. Unknown values are null: the threshold without quorum, the
/// time before the first score.
pub(super) async fn threshold(
    State(state): State<HttpState>,
    request_context: RequestContext,
    Query(query): Query<ThresholdQuery>,
) -> Response {
    let cluster = query.cluster_id.as_deref().unwrap_or_default();
    let Ok(cluster) = cluster.parse::<ClusterId>() else {
        let message = "missing cluster_id: /api/v1/threshold?cluster_id=NAME";
        return failure(Code::Invalid, error_body(Code::Invalid, message));
    };
    let policy = state
        .runtime
        .policies
        .borrow()
        .for_cluster(&cluster)
        .cloned();
    // A cluster that the caller may not query is treated as missing.
    let policy = policy.filter(|_| request_context.caller.knows(&cluster));
    let Some(policy) = policy else {
        let shard = state.contexts.base().shard.as_deref();
        let other = shard.and_then(|shard| shard.other_of(&cluster));
        let hint =
            other.map(|other| format!(" here; it belongs to {other}; send the request there"));
        let hint = hint.unwrap_or_default();
        let message = format!("no node of cluster {cluster} has reported yet{hint}");
        return failure(Code::NotFound, error_body(Code::NotFound, &message));
    };
    let (threshold, has_quorum) = (policy.threshold(), policy.has_quorum());
    let health = policy.health;
    let answer = json!({
        "cluster_id": cluster.as_str(),
        "threshold": threshold,
        "quorum_met": has_quorum,
        "nodes_reporting": health.map_or(0, |health| health.nodes_reporting),
        "nodes_needed": health.map(|health| health.nodes_needed),
        "k": health.map(|health| health.k),
        "ema_alpha": health.map(|health| health.ema_alpha),
        "policy_version": (policy.version > 0).then_some(policy.version),
        "computed_at": health.map(|health| health.computed_at.to_string()),
    });
    let mut response = success(answer.to_string());
    let headers = response.headers_mut();
    let text = threshold.map(|threshold| threshold.to_string());
    if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
        let name = HeaderName::from_static(metadata::HTTP_INGERO_THRESHOLD);
        headers.insert(name, value);
    }
    let quorum_met = if has_quorum { "true" } else { "false" };
    let name = HeaderName::from_static(metadata::HTTP_INGERO_QUORUM_MET);
    headers.insert(name, HeaderValue::from_static(quorum_met));
    response
}
