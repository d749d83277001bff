//! What went wrong, where the table of errors wants it: in the result of a tool, or as an error of the protocol.

use std::borrow::Cow;

use echo_core::error::{Code, Coded};
use echo_tools::{ToolError, error_body};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode};
use serde_json::Value;

use crate::request::{RequestId, note};

/// Methods whose parameters are read.
const KNOWN: [&str; 6] = [
    "tools/call",
    "tools/list",
    "resources/read",
    "resources/list",
    "prompts/get",
    "prompts/list",
];

/// What a tool could not answer.
pub(super) fn of_tool(
    name: &str,
    error: &ToolError,
    id: Option<&RequestId>,
) -> Result<CallToolResult, ErrorData> {
    let is_of_protocol =
        matches!(error, ToolError::UnknownTool { .. }) || error.code().json_rpc().is_some();
    if is_of_protocol {
        return Err(of_protocol(name, error, id));
    }
    let text = body(error, id).to_string();
    Ok(CallToolResult::error(vec![ContentBlock::text(text)]))
}

/// The same where there is no result that could say it.
pub(super) fn of_protocol(name: &str, error: &ToolError, id: Option<&RequestId>) -> ErrorData {
    note(name, error, id);
    let code = match error {
        ToolError::UnknownTool { .. } | ToolError::Invalid(_) => ErrorCode::INVALID_PARAMS,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    with_body(code, body(error, id))
}

/// A message that is not what its method takes.
pub(super) fn malformed(method: &str) -> ErrorData {
    if !KNOWN.contains(&method) {
        return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None);
    }
    let message = match method {
        "tools/call" => {
            "params of tools/call are {\"name\": TEXT, \"arguments\": OBJECT}; arguments are no list and no text".to_owned()
        }
        method => format!("these are no params of {method}"),
    };
    with_body(
        ErrorCode::INVALID_PARAMS,
        error_body(Code::Invalid, &message),
    )
}

fn body(error: &ToolError, id: Option<&RequestId>) -> Value {
    let body = error.body();
    match id {
        Some(id) => id.on(body),
        None => body,
    }
}

fn with_body(code: ErrorCode, body: Value) -> ErrorData {
    let message = body.pointer("/error/message").and_then(Value::as_str);
    let message = Cow::Owned(message.unwrap_or_default().to_owned());
    ErrorData::new(code, message, Some(body))
}
