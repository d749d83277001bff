//! The tools over HTTP.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use echo_access::Principal;
use echo_core::error::{Code, Coded};
use echo_tools::picture::Format;
use echo_tools::registry::Registry;
use echo_tools::{ToolError, error_body};
use serde_json::map::Entry;
use serde_json::{Map, Value, json};

use crate::http::HttpState;
use crate::request::{MAX_BODY_BYTES, log_internal_error};
use crate::request_context::RequestContext;
use crate::response::{failure, picture_response, success};

/// Query parameter for the format of the answer.
const FORMAT: &str = "format";

/// Input field that requests a picture.
const PLOT: &str = "plot";

/// Format without a picture.
const JSON: &str = "json";

/// Lists the tools with their schemas.
pub(super) async fn list(
    State(state): State<HttpState>,
    request_context: RequestContext,
) -> Response {
    let tools: Vec<Value> = state
        .registry
        .tools_for(&request_context.caller)
        .map(|tool| {
            json!({
                "name": tool.name,
                "alias": tool.alias(),
                "title": tool.title,
                "description": tool.description,
                "input_schema": tool.input_schema,
                "output_schema": tool.output_schema,
                "read_only": true,
            })
        })
        .collect();
    success(json!({ "tools": tools }).to_string())
}

/// Calls a tool with the body as its input.
pub(super) async fn call(
    State(state): State<HttpState>,
    Path(name): Path<String>,
    request_context: RequestContext,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match body.map_err(unread).and_then(|body| input(&headers, &body)) {
        Ok(input) => answer(&state, &name, input, &request_context).await,
        Err((code, message)) => failure(code, error_body(code, &message)),
    }
}

/// Calls a tool with the query as its input. Tools are read-only, so the request is safe to cache
/// and to retry.
pub(super) async fn read(
    State(state): State<HttpState>,
    Path(name): Path<String>,
    request_context: RequestContext,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Response {
    match query {
        Ok(Query(pairs)) => {
            match with_plot(&state.registry, &request_context.caller, &name, pairs) {
                Ok(pairs) => answer(&state, &name, input_from_query(pairs), &request_context).await,
                Err(error) => failed(&name, &error, &request_context),
            }
        }
        Err(rejection) => {
            let body = error_body(Code::Invalid, &rejection.body_text());
            failure(Code::Invalid, body)
        }
    }
}

async fn answer(
    state: &HttpState,
    name: &str,
    input: Value,
    request_context: &RequestContext,
) -> Response {
    let called = request_context.call_tool(&state.registry, &state.contexts, name, input);
    match called.await {
        Ok(answer) => match answer.picture {
            Some(picture) => picture_response(picture),
            None => success(answer.text),
        },
        Err(error) => failed(name, &error, request_context),
    }
}

pub(super) fn failed(name: &str, error: &ToolError, request_context: &RequestContext) -> Response {
    log_internal_error(name, error, request_context.id.as_ref());
    failure(error.code(), error.body())
}

/// Replaces `format` by `plot` in a query to a tool that draws, so that the URL of a picture names
/// its format.
fn with_plot(
    registry: &Registry,
    caller: &Principal,
    name: &str,
    mut pairs: Vec<(String, String)>,
) -> Result<Vec<(String, String)>, ToolError> {
    if !registry.find(caller, name)?.supports_plot {
        return Ok(pairs);
    }
    let is_given = |name: &str| pairs.iter().any(|(field, _)| field == name);
    if is_given(FORMAT) && is_given(PLOT) {
        let message = format!("is equivalent to {PLOT}; give only one of them");
        return Err(ToolError::invalid(FORMAT, message));
    }
    let known = Format::ALL.map(Format::name);
    for (field, value) in pairs.iter_mut().filter(|(field, _)| field == FORMAT) {
        if value == JSON {
            continue;
        }
        if !known.contains(&value.as_str()) {
            let message = format!("must be one of {JSON}, {}", known.join(", "));
            return Err(ToolError::invalid(FORMAT, message));
        }
        PLOT.clone_into(field);
    }
    pairs.retain(|(field, _)| field != FORMAT);
    Ok(pairs)
}

/// Converts a query to an input. A repeated parameter becomes a list, which the schema accepts or
/// rejects.
fn input_from_query(pairs: Vec<(String, String)>) -> Value {
    let mut input = Map::new();
    for (name, value) in pairs {
        let value = Value::String(value);
        match input.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(value);
            }
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Value::Array(values) => values.push(value),
                first => *first = Value::Array(vec![first.take(), value]),
            },
        }
    }
    Value::Object(input)
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
    if body.is_empty() {
        return Ok(json!({}));
    }
    if !is_json(headers) {
        let message =
            "the body is not declared as JSON; send the header Content-Type: application/json";
        return Err((Code::WrongType, message.to_owned()));
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
