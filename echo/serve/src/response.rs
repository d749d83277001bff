//! Responses: JSON text with a final line feed, and error bodies with the request id.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use echo_core::error::Code;
use echo_tools::error_body;
use echo_tools::picture::Picture;
use serde_json::Value;

use crate::request::{REQUEST_ID, RequestId, RequestIds};

/// Seconds after which a caller may retry.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// Content security policy of a picture opened by itself: no capabilities, because it contains
/// names from outside.
const PICTURE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

/// Longest plain-text error that is copied into an error body.
const MAX_REFUSAL_BYTES: usize = 4 * 1024;

/// Error body of a response, without request id.
#[derive(Debug, Clone)]
struct ErrorBody(Value);

/// Error body as sent, for outer layers that render it in another format.
#[derive(Debug, Clone)]
pub(super) struct ErrorResponse(pub(super) Value);

/// Returns a response with JSON text and a final line feed.
pub(super) fn success(mut json: String) -> Response {
    json.push('\n');
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, json).into_response()
}

/// Returns a response with a picture.
pub(super) fn picture_response(picture: Picture) -> Response {
    let kind = HeaderValue::from_static(picture.format.media_type());
    let headers = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(PICTURE_POLICY),
        ),
    ];
    (headers, picture.bytes).into_response()
}

/// Returns an error response.
pub(super) fn failure(code: Code, body: Value) -> Response {
    let status = StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = success(body.to_string());
    *response.status_mut() = status;
    if matches!(code, Code::Busy | Code::TooMany) {
        response
            .headers_mut()
            .insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    response.extensions_mut().insert(ErrorBody(body));
    response
}

/// Assigns each request an id, and gives every error the standard body with that id.
pub(super) async fn assign_request_id(
    State(ids): State<RequestIds>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = ids.for_headers(request.headers());
    request.extensions_mut().insert(id.clone());
    let mut response = with_error_body(next.run(request).await, &id).await;
    let headers = response.headers_mut();
    // Prevents browsers from guessing the content type.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        headers.insert(REQUEST_ID, value);
    }
    response
}

async fn with_error_body(mut response: Response, id: &RequestId) -> Response {
    let body = match response.extensions_mut().remove::<ErrorBody>() {
        Some(ErrorBody(body)) => body,
        None if lacks_error_body(&response) => {
            let code = Code::from_http(response.status().as_u16()).unwrap_or(Code::Invalid);
            let (parts, body) = response.into_parts();
            let text = to_bytes(body, MAX_REFUSAL_BYTES).await.unwrap_or_default();
            response = Response::from_parts(parts, Body::empty());
            error_body(code, &String::from_utf8_lossy(&text))
        }
        None => return response,
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let kind = HeaderValue::from_static("application/json");
    parts.headers.insert(CONTENT_TYPE, kind);
    let body = id.attach_to(body);
    let text = format!("{body}\n");
    parts.extensions.insert(ErrorResponse(body));
    Response::from_parts(parts, Body::from(text))
}

/// Returns whether this is an error without a body, or with plain text.
fn lacks_error_body(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let has_type = |known: &[u8]| kind.is_some_and(|kind| kind.as_bytes().starts_with(known));
    let status = response.status();
    (status.is_client_error() || status.is_server_error())
        && !has_type(b"application/json")
        && !has_type(b"text/html")
}
