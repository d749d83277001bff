//! Path of the trace of a rank.

use echo_core::error::Code;
use echo_tools::explain_rank::ExplainRank;
use echo_tools::schemas::input_schema;
use serde_json::{Value, json};

use crate::http::openapi::fixed_paths::{get, object};
use crate::http::openapi::in_json;

const ERRORS: [Code; 4] = [Code::Invalid, Code::NotFound, Code::Busy, Code::Timeout];

/// Query parameters, as the tool `explain_rank` has them.
const PARAMETERS: [&str; 6] = ["cluster", "rank", "job", "from", "to", "window"];

/// Returns the path with its operation.
pub(super) fn path() -> (String, Value) {
    let trace = object(
        &["displayTimeUnit", "traceEvents"],
        json!({
            "displayTimeUnit": { "type": "string" },
            "traceEvents": { "type": "array", "items": { "type": "object" }, "description": "Events in the trace event format of Chrome." },
        }),
    );
    let summary = "Trace of a rank beside one of its peers, for ui.perfetto.dev";
    let mut operation = get(
        "trace",
        summary,
        in_json("The trace, as a file.", trace),
        &ERRORS,
    );
    let schema = input_schema::<ExplainRank>();
    let parameters = PARAMETERS.map(|name| parameter(name, &schema));
    if let Some(operation) = operation.get_mut("get").and_then(Value::as_object_mut) {
        operation.insert("parameters".to_owned(), json!(parameters));
    }
    ("/api/v1/trace.json".to_owned(), operation)
}

/// Returns a field of the input of a tool as a query parameter.
pub(super) fn parameter(name: &str, input: &Value) -> Value {
    let mut schema = input
        .pointer(&format!("/properties/{name}"))
        .cloned()
        .unwrap_or_default();
    let mut take = |field: &str| schema.as_object_mut()?.remove(field);
    let description = take("description");
    // A parameter that is absent has no value, and only tools of MCP are routed by a header.
    take("default");
    take("x-mcp-header");
    json!({
        "name": name,
        "in": "query",
        "required": name == "rank",
        "description": description,
        "schema": schema,
    })
}
