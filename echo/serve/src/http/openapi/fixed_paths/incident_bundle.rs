//! Path of the archive with everything that is known of an incident.

use echo_core::error::Code;
use serde_json::{Value, json};

use crate::http::openapi::fixed_paths::get;

const ERRORS: [Code; 4] = [Code::Invalid, Code::NotFound, Code::Busy, Code::Timeout];

/// Returns the path with its operation.
pub(super) fn path() -> (String, Value) {
    let summary = "Everything that is known of an incident, as a gzipped tar archive";
    let archive = json!({
        "description": "The archive, as a file.",
        "content": { "application/gzip": { "schema": { "type": "string", "format": "binary" } } },
    });
    let mut operation = get("incident_bundle", summary, archive, &ERRORS);
    let parameter = |name: &str, description: &str, is_required: bool| {
        json!({
            "name": name,
            "in": "query",
            "required": is_required,
            "description": description,
            "schema": { "type": "string" },
        })
    };
    let parameters = [
        parameter("cluster", "Cluster. Default: the only cluster.", false),
        parameter("incident", "Incident id, 16 hexadecimal digits.", true),
    ];
    if let Some(operation) = operation.get_mut("get").and_then(Value::as_object_mut) {
        operation.insert("parameters".to_owned(), json!(parameters));
    }
    ("/api/v1/incident.tar.gz".to_owned(), operation)
}
