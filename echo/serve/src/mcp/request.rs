//! Requests in the form that the SDK expects. It wants both media types of the protocol in `Accept`,
//! although all responses are JSON.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use echo_core::error::Code;
use echo_tools::error_body;

use crate::request::MAX_BODY_BYTES;
use crate::response::failure;

const BOTH_TYPES: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Adapts the request of a client that accepts JSON. Refuses batches, which only revision 2025-03-26
/// has: a batch is many calls in one request, which would evade the limit on the rate of requests.
pub(super) async fn adapt(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if accepts_json(&parts.headers) {
        parts.headers.insert(ACCEPT, BOTH_TYPES);
    }
    // The middleware has read it already.
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        return refusal("the body could not be read");
    };
    if body.trim_ascii_start().starts_with(b"[") {
        return refusal("batches are not supported: send each message in a request of its own");
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

fn refusal(reason: &str) -> Response {
    failure(Code::Invalid, error_body(Code::Invalid, reason))
}

/// Returns whether the client accepts JSON, as it does if it says nothing (RFC 9110, 12.5.1).
fn accepts_json(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter();
    let mut ranges = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter(|range| !range.trim().is_empty())
        .peekable();
    ranges.peek().is_none() || ranges.any(includes_json)
}

/// Returns whether a media range includes JSON, with a weight above zero.
fn includes_json(range: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let mut weights = parts.filter_map(|parameter| parameter.strip_prefix("q=")?.parse().ok());
    ["application/json", "application/*", "*/*"]
        .iter()
        .any(|json| media.eq_ignore_ascii_case(json))
        && weights.all(|weight: f32| weight > 0.0)
}
