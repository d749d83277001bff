//! API versions, for clients that negotiate.

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use crate::http::{HttpState, SQL_ENDPOINT, TOOLS_ENDPOINT};
use crate::response::success;

/// Returns the versions of the API and the names of the tools. The exact version of the program is
/// not disclosed.
pub(super) async fn versions(State(state): State<HttpState>) -> Response {
    let version = concat!(
        env!("CARGO_PKG_VERSION_MAJOR"),
        ".",
        env!("CARGO_PKG_VERSION_MINOR")
    );
    let tools: Vec<&str> = state
        .registry
        .tools()
        .iter()
        .map(|tool| tool.name)
        .collect();
    let answer = json!({
        "service": "fleet-echo",
        "version": version,
        "api": ["v1"],
        "tools": tools,
        "tools_endpoint": TOOLS_ENDPOINT,
        "sql_endpoint": SQL_ENDPOINT,
        // Nothing that is served may change without notice.
        "experimental": [],
    });
    success(answer.to_string())
}
