//! Responses: JSON text ended by a line feed, and the one body of an error, completed by the number of the request.

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

/// Seconds after which a caller may try again.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// What a picture may do where somebody opens it by itself: nothing. Names in it come from outside.
const PICTURE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

/// Longest text of a refusal that is taken over into an error body.
const MAX_REFUSAL_BYTES: usize = 4 * 1024;

/// The body of an error on its way out.
#[derive(Debug, Clone)]
struct Failure(Value);

/// The body of an error as it was sent, for whoever says it in another form further out.
#[derive(Debug, Clone)]
pub(super) struct Told(pub(super) Value);

/// A response with JSON text, ended by a line feed.
pub(super) fn success(mut json: String) -> Response {
    json.push('\n');
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, json).into_response()
}

/// A response with a picture.
pub(super) fn pictured(picture: Picture) -> Response {
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

/// A response with an error.
pub(super) fn failure(code: Code, body: Value) -> Response {
    let status = StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = success(body.to_string());
    *response.status_mut() = status;
    if matches!(code, Code::Busy | Code::TooMany) {
        response
            .headers_mut()
            .insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    response.extensions_mut().insert(Failure(body));
    response
}

/// Gives each request a number, and each error the one body with that number in it, whoever turned the request down.
pub(super) async fn number(
    State(ids): State<RequestIds>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = ids.of(request.headers());
    request.extensions_mut().insert(id.clone());
    let mut response = finished(next.run(request).await, &id).await;
    let headers = response.headers_mut();
    // Browsers take an answer for what it says it is.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        headers.insert(REQUEST_ID, value);
    }
    response
}

async fn finished(mut response: Response, id: &RequestId) -> Response {
    let body = match response.extensions_mut().remove::<Failure>() {
        Some(Failure(body)) => body,
        None if is_bare(&response) => {
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
    let body = id.on(body);
    let text = format!("{body}\n");
    parts.extensions.insert(Told(body));
    Response::from_parts(parts, Body::from(text))
}

/// Whether this is a refusal that says nothing, or says it in plain text.
fn is_bare(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let says = |known: &[u8]| kind.is_some_and(|kind| kind.as_bytes().starts_with(known));
    let status = response.status();
    (status.is_client_error() || status.is_server_error())
        && !says(b"application/json")
        && !says(b"text/html")
}
