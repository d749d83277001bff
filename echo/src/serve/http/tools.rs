//! The tools over HTTP.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

use crate::error::{Code, Coded, chain};
use crate::serve::http::{HttpState, MAX_BODY_BYTES, failure, success};
use crate::tools::{ToolError, error_body};

/// Lists the tools with their schemas.
pub(super) async fn list(State(state): State<HttpState>) -> Response {
    let tools: Vec<Value> = state
        .registry
        .tools()
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "alias": tool.alias(),
                "title": tool.title,
                "description": tool.description,
                "input_schema": tool.input_schema,
                "output_schema": tool.output_schema,
            })
        })
        .collect();
    success(json!({ "tools": tools }).to_string())
}

/// Calls a tool.
pub(super) async fn call(
    State(state): State<HttpState>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let input = match body.map_err(unread).and_then(|body| input(&headers, &body)) {
        Ok(input) => input,
        Err((code, message)) => return failure(code, error_body(code, &message)),
    };
    match state.registry.dispatch(&state.context, &name, input).await {
        Ok(answer) => success(answer),
        Err(error) => {
            log(&name, &error);
            failure(error.code(), error.body())
        }
    }
}

/// A defect is logged once, here; what the caller did wrong is the caller's to know.
fn log(name: &str, error: &ToolError) {
    if error.code() == Code::Internal {
        tracing::error!(
            tool.name = name,
            error = chain(error),
            "tool {name} gave no answer"
        );
    }
}

fn unread(rejection: BytesRejection) -> (Code, String) {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let message = format!("the body is longer than {MAX_BODY_BYTES} bytes");
        (Code::TooLarge, message)
    } else {
        (Code::Invalid, "the body could not be read".to_owned())
    }
}

fn input(headers: &HeaderMap, body: &Bytes) -> Result<Value, (Code, String)> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(json!({}));
    }
    if !is_json(headers) {
        let message =
            "the body is not declared as JSON; send the header Content-Type: application/json";
        return Err((Code::Invalid, message.to_owned()));
    }
    serde_json::from_slice(body)
        .map_err(|error| (Code::Invalid, format!("the body is not JSON: {error}")))
}

fn is_json(headers: &HeaderMap) -> bool {
    let declared = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = declared.and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}
