//! Responses: JSON text ended by a line feed, and the one body of an error, completed by the number of the request.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::Code;
use crate::tools::error_body;

/// Seconds after which a caller may try again.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// Header with the number of a request.
pub(in crate::serve) const REQUEST_ID: &str = "x-request-id";

/// Longest number that a caller may give its request, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// Longest text of a refusal that is taken over into an error body.
const MAX_REFUSAL_BYTES: usize = 4 * 1024;

/// The number of a request, the caller's own where it gave one.
#[derive(Debug, Clone)]
pub(in crate::serve) struct RequestId(Arc<str>);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RequestId {
    /// The error body with the number in it.
    pub(in crate::serve) fn on(&self, mut body: Value) -> Value {
        if let Some(error) = body.pointer_mut("/error").and_then(Value::as_object_mut) {
            error.insert("request_id".to_owned(), json!(*self.0));
        }
        body
    }
}

/// Makes numbers of requests that differ between processes, too. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestIds {
    seed: Arc<RandomState>,
    made: Arc<AtomicU64>,
}

impl RequestIds {
    fn next(&self) -> RequestId {
        let number = self.seed.hash_one(self.made.fetch_add(1, Relaxed));
        RequestId(Arc::from(format!("{number:016x}")))
    }

    fn of(&self, headers: &HeaderMap) -> RequestId {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let given = given
            .filter(|id| (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.chars().all(plain));
        given.map_or_else(|| self.next(), |id| RequestId(Arc::from(id)))
    }
}

/// The body of an error on its way out.
#[derive(Debug, Clone)]
struct Failure(Value);

/// A response with JSON text, ended by a line feed.
pub(super) fn success(mut json: String) -> Response {
    json.push('\n');
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, json).into_response()
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
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

async fn finished(mut response: Response, id: &RequestId) -> Response {
    let body = match response.extensions_mut().remove::<Failure>() {
        Some(Failure(body)) => body,
        None if is_bare(&response) => {
            let code = Code::of_http(response.status().as_u16()).unwrap_or(Code::Invalid);
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
    Response::from_parts(parts, Body::from(format!("{}\n", id.on(body))))
}

/// Whether this is a refusal that says nothing, or says it in plain text.
fn is_bare(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let is_json = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let status = response.status();
    (status.is_client_error() || status.is_server_error()) && !is_json
}
