//! Paths that are not tools.

use echo_core::error::Code;
use serde_json::{Map, Value, json};

use crate::http::openapi::{in_json, responses};
use crate::http::{SQL_ENDPOINT, TOOLS_ENDPOINT};

mod clusters;
mod cost;
mod incident_bundle;
mod rank_trace;

/// Path, operation, summary, and schema of the answer.
type Fixed = (&'static str, &'static str, &'static str, fn() -> Value);

const FIXED: [Fixed; 7] = [
    (
        TOOLS_ENDPOINT,
        "tools",
        "The tools with their schemas",
        tools,
    ),
    (
        "/api/v1/tools/list",
        "list_tools",
        "The same as /api/v1/tools",
        tools,
    ),
    (
        SQL_ENDPOINT,
        "sql_views",
        "The views that SQL can query",
        views,
    ),
    ("/api/v1/openapi.json", "openapi", "This document", anything),
    (
        "/api/v1/health",
        "health",
        "Status, and progress of the detector",
        health,
    ),
    ("/api/versions", "versions", "Versions of the API", versions),
    ("/healthz", "alive", "Liveness of the process", liveness),
];

/// Returns the paths with their operations.
pub(super) fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    for (path, id, summary, schema) in FIXED {
        paths.insert(
            path.to_owned(),
            get(id, summary, in_json(summary, schema()), &[]),
        );
    }
    let ready = get(
        "ready",
        "Readiness for events",
        in_json("Events are accepted.", readiness()),
        &[],
    );
    paths.insert("/readyz".to_owned(), with_unready(ready));
    paths.insert("/metrics".to_owned(), metrics());
    paths.insert("/api/v1/threshold".to_owned(), threshold());
    paths.extend(cost::paths());
    paths.extend([
        clusters::path(),
        rank_trace::path(),
        incident_bundle::path(),
    ]);
    paths
}

fn get(id: &str, summary: &str, answer: Value, errors: &[Code]) -> Value {
    // Every path can reject the host name, and can fail.
    let errors = [&[Code::Forbidden, Code::Internal], errors].concat();
    json!({
        "get": {
            "operationId": id,
            "summary": summary,
            "tags": ["operation"],
            "responses": responses(answer, &errors),
        },
    })
}

/// Adds the 503 response, which has the same body.
fn with_unready(mut path: Value) -> Value {
    if let Some(Value::Object(responses)) = path.pointer_mut("/get/responses") {
        let unready = in_json("Events are not accepted, with reasons.", readiness());
        responses.insert("503".to_owned(), unready);
    }
    path
}

fn metrics() -> Value {
    let answer = json!({
        "description": "Text format of Prometheus, or OpenMetrics if the request accepts it",
        "content": {
            "text/plain": { "schema": { "type": "string" } },
            "application/openmetrics-text": { "schema": { "type": "string" } },
        },
    });
    get("metrics", "Metrics for Prometheus", answer, &[])
}

fn threshold() -> Value {
    let answer = object(
        &["cluster_id", "threshold", "quorum_met", "nodes_reporting"],
        json!({
            "cluster_id": { "type": "string" },
            "threshold": { "type": ["number", "null"] },
            "quorum_met": { "type": "boolean" },
            "nodes_reporting": { "type": "integer" },
            "nodes_needed": { "type": ["integer", "null"] },
            "k": { "type": ["number", "null"] },
            "ema_alpha": { "type": ["number", "null"] },
            "policy_version": { "type": ["integer", "null"] },
            "computed_at": { "type": ["string", "null"] },
        }),
    );
    let answer = in_json("The threshold; null without quorum.", answer);
    let errors = [Code::Invalid, Code::NotFound];
    let mut path = get(
        "threshold",
        "Health score threshold for Ingero agents",
        answer,
        &errors,
    );
    if let Some(operation) = path.get_mut("get").and_then(Value::as_object_mut) {
        let cluster = json!({ "type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]+$" });
        let parameter =
            json!({ "name": "cluster_id", "in": "query", "required": true, "schema": cluster });
        operation.insert("parameters".to_owned(), json!([parameter]));
    }
    path
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn anything() -> Value {
    json!({ "type": "object" })
}

fn tools() -> Value {
    let tool = object(
        &[
            "name",
            "alias",
            "title",
            "description",
            "input_schema",
            "output_schema",
            "read_only",
        ],
        json!({
            "name": { "type": "string" },
            "alias": { "type": "string" },
            "title": { "type": "string" },
            "description": { "type": "string" },
            "input_schema": { "type": "object" },
            "output_schema": { "type": "object" },
            "read_only": { "type": "boolean" },
        }),
    );
    object(
        &["tools"],
        json!({ "tools": { "type": "array", "items": tool } }),
    )
}

fn views() -> Value {
    let column = object(
        &["name", "type", "comment"],
        json!({
            "name": { "type": "string" },
            "type": { "type": "string" },
            "comment": { "type": "string" },
        }),
    );
    let view = object(
        &["name", "comment", "columns"],
        json!({
            "name": { "type": "string" },
            "comment": { "type": "string" },
            "columns": { "type": "array", "items": column },
        }),
    );
    object(
        &["views"],
        json!({ "views": { "type": "array", "items": view } }),
    )
}

fn health() -> Value {
    object(
        &[
            "status",
            "events_queued",
            "events_committed",
            "events_judged",
            "now",
        ],
        json!({
            "status": { "type": "string" },
            "events_queued": { "type": "integer" },
            "events_committed": { "type": "integer" },
            "events_judged": { "type": "integer" },
            "now": { "type": "string" },
            "shard": {
                "type": "object",
                "description": "Shard of this instance, and URLs of all shards; absent if it is the only one.",
            },
        }),
    )
}

fn versions() -> Value {
    object(
        &[
            "service",
            "version",
            "api",
            "tools",
            "tools_endpoint",
            "sql_endpoint",
            "experimental",
        ],
        json!({
            "service": { "type": "string" },
            "version": { "type": "string" },
            "api": { "type": "array", "items": { "type": "string" } },
            "tools": { "type": "array", "items": { "type": "string" } },
            "tools_endpoint": { "type": "string" },
            "sql_endpoint": { "type": "string" },
            "experimental": {
                "type": "array",
                "description": "Paths that may change without notice.",
                "items": { "type": "string" },
            },
        }),
    )
}

fn liveness() -> Value {
    object(&["status"], json!({ "status": { "type": "string" } }))
}

fn readiness() -> Value {
    let reason = object(
        &["reason", "message"],
        json!({ "reason": { "type": "string" }, "message": { "type": "string" } }),
    );
    object(
        &["ready", "reasons"],
        json!({ "ready": { "type": "boolean" }, "reasons": { "type": "array", "items": reason } }),
    )
}
