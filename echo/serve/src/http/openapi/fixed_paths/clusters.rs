//! Path of the list of clusters.

use echo_core::error::Code;
use serde_json::{Value, json};

use crate::http::openapi::fixed_paths::{get, object};
use crate::http::openapi::in_json;

/// Returns the path with its operation.
pub(super) fn path() -> (String, Value) {
    let cluster = object(
        &["cluster", "n_nodes", "n_jobs", "n_gpus", "gpu_models"],
        json!({
            "cluster": { "type": "string" },
            "n_nodes": { "type": "integer" },
            "n_jobs": { "type": "integer" },
            "n_gpus": { "type": "integer" },
            "gpu_models": { "type": "array", "items": { "type": "string" } },
            "first_event": { "type": ["string", "null"] },
            "last_event": { "type": ["string", "null"] },
            "n_open": { "type": ["integer", "null"], "description": "Open incidents; null if the caller may not query them." },
            "open_since": { "type": ["string", "null"] },
        }),
    );
    let answer = object(
        &["clusters", "truncated", "now"],
        json!({
            "clusters": { "type": "array", "items": cluster },
            "truncated": { "type": "boolean" },
            "now": { "type": "string" },
        }),
    );
    let summary = "The clusters that the caller may query";
    let operation = get(
        "clusters",
        summary,
        in_json("The clusters by name.", answer),
        &[Code::Busy, Code::Timeout],
    );
    ("/api/v1/clusters".to_owned(), operation)
}
