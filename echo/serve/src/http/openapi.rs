//! This API as an OpenAPI 3.1 document, generated from the registry: its schemas are the ones that
//! validate arguments and generate answers.

use axum::extract::State;
use axum::response::Response;
use echo_access::{Kind, Principal};
use echo_core::error::Code;
use echo_tools::registry::Registry;
use echo_tools::run_analysis::RunAnalysis;
use echo_tools::tool::Tool;
use serde_json::{Map, Value, json};

use crate::http::HttpState;
use crate::request_context::RequestContext;
use crate::response::success;

mod fixed_paths;
mod tool_paths;

/// Returns the document.
pub(super) async fn openapi(
    State(state): State<HttpState>,
    request_context: RequestContext,
) -> Response {
    success(document(&state.registry, &request_context.caller).to_string())
}

/// Returns the document of the tools that this caller may use.
pub fn document(registry: &Registry, caller: &Principal) -> Value {
    let mut schemas = Map::new();
    schemas.insert("Error".to_owned(), error_schema());
    let mut paths = Map::new();
    for tool in registry.tools_for(caller) {
        let path = format!("/api/v1/tools/{}", tool.name);
        paths.insert(path, tool_paths::path(tool, &mut schemas));
    }
    paths.extend(fixed_paths::paths());
    add_sql(&mut paths);
    // Without authentication, no token is required.
    let security = match caller.kind {
        Kind::Local => json!([]),
        _ => json!([{ "bearer": [] }]),
    };
    let schemes = json!({ "bearer": { "type": "http", "scheme": "bearer" } });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Echo",
            "version": concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR")),
            "summary": "Which GPU rank holds a cluster back, since when, and at what cost.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/", "description": "The instance that serves this document" }],
        "paths": paths,
        "security": security,
        "components": { "schemas": schemas, "securitySchemes": schemes },
    })
}

/// Adds the SQL path, which has the schema of its tool.
fn add_sql(paths: &mut Map<String, Value>) {
    let tool = paths.get(&format!("/api/v1/tools/{}", RunAnalysis::NAME));
    let Some(mut post) = tool.and_then(|path| path.get("post")).cloned() else {
        return;
    };
    if let Some(operation) = post.as_object_mut() {
        operation.insert("operationId".to_owned(), json!("sql"));
    }
    if let Some(Value::Object(path)) = paths.get_mut("/api/v1/sql") {
        path.insert("post".to_owned(), post);
    }
}

/// Returns the schema of every error body.
fn error_schema() -> Value {
    let codes = Code::ALL.map(Code::name);
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message", "request_id"],
                "properties": {
                    "code": { "type": "string", "enum": codes },
                    "message": { "type": "string", "description": "Error, and what to do." },
                    "hint": { "type": "string", "description": "Alternative to rejected SQL." },
                    "request_id": {
                        "type": "string",
                        "description": "Request id, also in the header x-request-id and in Echo's log.",
                    },
                    "details": {
                        "type": "array",
                        "description": "All errors of the input.",
                        "items": {
                            "type": "object",
                            "required": ["pointer", "message"],
                            "properties": {
                                "pointer": { "type": "string", "description": "Position, as a JSON pointer." },
                                "message": { "type": "string" },
                            },
                        },
                    },
                },
            },
        },
    })
}

/// Returns the responses of an operation: its answer, and these errors.
fn responses(answer: Value, errors: &[Code]) -> Value {
    let mut responses = Map::new();
    responses.insert("200".to_owned(), answer);
    for code in errors {
        let error = json!({
            "description": code.name().replace('_', " "),
            "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
        });
        responses.insert(code.http().to_string(), error);
    }
    Value::Object(responses)
}

/// Returns a response with a JSON schema.
fn in_json(description: &str, schema: Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

#[cfg(test)]
mod tests;
