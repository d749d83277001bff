//! HTTP headers in which revision 2026-07-28 of the protocol repeats parts of a message.

use std::collections::BTreeMap;

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// Header with the protocol revision.
pub(super) const VERSION: &str = "mcp-protocol-version";

/// Arguments of tools that are repeated in headers: by tool, the names of argument and header.
pub(super) type HeaderArguments = BTreeMap<String, Vec<(String, String)>>;

/// Returns the protocol revision named in a message; older revisions name it only in the first
/// message.
pub(super) fn version(message: &Value) -> Option<&str> {
    let meta = message.get("params")?.get("_meta")?;
    meta.get("io.modelcontextprotocol/protocolVersion")?
        .as_str()
}

/// Reads from a tool list which arguments are repeated in headers; `None` if it is not a tool list.
pub(super) fn header_arguments(list: &Value) -> Option<HeaderArguments> {
    let mut header_arguments = HeaderArguments::new();
    for tool in list.get("tools")?.as_array()? {
        let fields = tool.pointer("/input_schema/properties");
        let fields = fields.and_then(Value::as_object).into_iter().flatten();
        let tool_arguments: Vec<(String, String)> = fields
            .filter_map(|(name, field)| {
                let header = field.get("x-mcp-header")?.as_str()?;
                Some((name.clone(), format!("mcp-param-{header}")))
            })
            .collect();
        for name in ["name", "alias"] {
            if let Some(name) = tool.get(name).and_then(Value::as_str) {
                header_arguments.insert(name.to_owned(), tool_arguments.clone());
            }
        }
    }
    Some(header_arguments)
}

/// Returns the headers of a message: method, tool or resource name, and tool arguments.
pub(super) fn headers_for(message: &Value, header_arguments: &HeaderArguments) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: &str, value: &str| {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(encode(value))) {
            headers.insert(name, value);
        }
    };
    let text = |name: &str| message.pointer(name).and_then(Value::as_str);
    let method = text("/method").unwrap_or_default();
    put("mcp-method", method);
    let about = match method {
        "tools/call" | "prompts/get" => text("/params/name"),
        "resources/read" => text("/params/uri"),
        _ => None,
    };
    if let Some(about) = about {
        put("mcp-name", about);
    }
    let arguments = message.pointer("/params/arguments");
    let tool_arguments = about
        .filter(|_| method == "tools/call")
        .and_then(|name| header_arguments.get(name));
    for (argument, header) in tool_arguments.into_iter().flatten() {
        match arguments.and_then(|arguments| arguments.get(argument)) {
            Some(Value::String(value)) => put(header, value),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => put(header, &value.to_string()),
            _ => {}
        }
    }
    headers
}

/// Encodes a value that is not valid in a header as Base64.
fn encode(value: &str) -> String {
    let is_plain = value.chars().all(|c| matches!(c, ' '..='~'))
        && value.trim() == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    if is_plain {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{HeaderArguments, header_arguments, headers_for, version};

    #[test]
    fn a_call_repeats_its_tool_and_its_cluster() {
        let list = json!({ "tools": [{
            "name": "a.b", "alias": "a_b",
            "input_schema": { "properties": { "cluster": { "x-mcp-header": "Cluster" }, "rank": {} } },
        }] });
        let message = json!({
            "method": "tools/call",
            "params": { "name": "a_b", "arguments": { "cluster": "prod", "rank": 2 } },
        });
        let headers = headers_for(&message, &header_arguments(&list).unwrap());
        assert_eq!(headers.len(), 3);
        assert_eq!(headers["mcp-method"], "tools/call");
        assert_eq!(headers["mcp-name"], "a_b");
        assert_eq!(headers["mcp-param-cluster"], "prod");
    }

    #[test]
    fn a_response_without_tools_is_not_a_tool_list() {
        assert_eq!(
            header_arguments(&json!({ "tools": [] })),
            Some(HeaderArguments::new())
        );
        for other in [json!({}), json!({ "tools": {} }), json!([])] {
            assert_eq!(header_arguments(&other), None, "{other}");
        }
    }

    #[test]
    fn values_that_are_invalid_in_headers_are_encoded() {
        let message = json!({ "method": "resources/read", "params": { "uri": "echo://\u{fc}\n" } });
        let headers = headers_for(&message, &HeaderArguments::new());
        assert_eq!(headers["mcp-name"], "=?base64?ZWNobzovL8O8Cg==?=");
    }

    #[test]
    fn only_newer_messages_name_their_revision() {
        let key = "io.modelcontextprotocol/protocolVersion";
        let message = json!({ "params": { "_meta": { key: "2026-07-28" } } });
        assert_eq!(version(&message), Some("2026-07-28"));
        assert_eq!(version(&json!({ "params": {} })), None);
    }
}
