//! Path of the archive with everything that is known of an incident.

use echo_core::error::Code;
use echo_tools::explain_rank::ExplainRank;
use echo_tools::schemas::input_schema;
use serde_json::{Value, json};

use crate::http::openapi::fixed_paths::get;
use crate::http::openapi::fixed_paths::rank_trace::parameter;

const ERRORS: [Code; 4] = [Code::Invalid, Code::NotFound, Code::Busy, Code::Timeout];

/// Returns the path with its operation.
pub(super) fn path() -> (String, Value) {
    let summary = "Everything that is known of an incident, as a gzipped tar archive";
    let archive = json!({
        "description": "The archive, as a file.",
        "content": { "application/gzip": { "schema": { "type": "string", "format": "binary" } } },
    });
    let mut operation = get("incident_bundle", summary, archive, &ERRORS);
    let cluster = parameter("cluster", &input_schema::<ExplainRank>());
    let incident = json!({
        "name": "incident",
        "in": "query",
        "required": true,
        "description": "Incident id, 16 hexadecimal digits.",
        "schema": { "type": "string", "pattern": "^[0-9a-f]{16}$" },
    });
    if let Some(operation) = operation.get_mut("get").and_then(Value::as_object_mut) {
        operation.insert("parameters".to_owned(), json!([cluster, incident]));
    }
    ("/api/v1/incident.tar.gz".to_owned(), operation)
}
