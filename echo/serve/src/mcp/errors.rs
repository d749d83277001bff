//! Errors of MCP calls: as the result of a tool or as a protocol error, according to the error
//! table.

use std::borrow::Cow;

use echo_core::error::{Code, Coded};
use echo_tools::{ToolError, error_body};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode};
use serde_json::Value;

use crate::request::{RequestId, log_internal_error};

/// Methods that take parameters.
const KNOWN: [&str; 6] = [
    "tools/call",
    "tools/list",
    "resources/read",
    "resources/list",
    "prompts/get",
    "prompts/list",
];

/// Converts an error of a tool.
pub(super) fn tool_error(
    name: &str,
    error: &ToolError,
    id: Option<&RequestId>,
) -> Result<CallToolResult, ErrorData> {
    let is_of_protocol =
        matches!(error, ToolError::UnknownTool { .. }) || error.code().json_rpc().is_some();
    if is_of_protocol {
        return Err(protocol_error(name, error, id));
    }
    let text = body(error, id).to_string();
    Ok(CallToolResult::error(vec![ContentBlock::text(text)]))
}

/// Converts an error to a protocol error.
pub(super) fn protocol_error(name: &str, error: &ToolError, id: Option<&RequestId>) -> ErrorData {
    log_internal_error(name, error, id);
    let code = match error {
        ToolError::UnknownTool { .. } | ToolError::Invalid(_) => ErrorCode::INVALID_PARAMS,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    with_body(code, body(error, id))
}

/// Returns the error of parameters that do not match their method.
pub(super) fn malformed(method: &str) -> ErrorData {
    if !KNOWN.contains(&method) {
        return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None);
    }
    let message = match method {
        "tools/call" => {
            "params of tools/call are {\"name\": TEXT, \"arguments\": OBJECT}; arguments must be an object".to_owned()
        }
        method => format!("invalid params of {method}"),
    };
    with_body(
        ErrorCode::INVALID_PARAMS,
        error_body(Code::Invalid, &message),
    )
}

fn body(error: &ToolError, id: Option<&RequestId>) -> Value {
    let body = error.body();
    match id {
        Some(id) => id.attach_to(body),
        None => body,
    }
}

fn with_body(code: ErrorCode, body: Value) -> ErrorData {
    let message = body.pointer("/error/message").and_then(Value::as_str);
    let message = Cow::Owned(message.unwrap_or_default().to_owned());
    ErrorData::new(code, message, Some(body))
}
