//! The HTTP API: a view of the tool registry, and what probes ask.
//!
//! | path | method | answer |
//! |---|---|---|
//! | `/api/v1/tools/list` | GET | every tool with the schemas of its input and answer |
//! | `/api/v1/tools/{name}` | POST | the tool's answer; the body is its input, an empty body is the empty input |
//! | `/api/v1/sql` | POST, GET | the rows of one SELECT, as the tool `run_analysis` gives them; what SELECT can ask about |
//! | `/api/v1/threshold?cluster_id=` | GET | what Ingero agents compare their health scores with, in the body and as headers |
//! | `/api/v1/health` | GET | that Echo runs, how much it has stored, and how much of that the detector has taken in |
//! | `/api/versions` | GET | which versions of the API there are |
//! | `/metrics` | GET | what Echo says of itself, for Prometheus |
//! | `/healthz`, `/readyz` | GET | that the process lives; whether events are taken, and if not, why |
//!
//! Every error is `{"error":{"code","message"}}`, with `field` when a field of the input is wrong; the status comes from
//! the one table in [`crate::error`]. There is neither encryption nor a question who is asking, so the listener belongs
//! on a loopback address; requests for another host are turned down, so that no web page can reach it by a name of its
//! own.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, RETRY_AFTER};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::Value;
use tokio::sync::watch;

use self::health::Readiness;
use self::metrics::Metrics;
use crate::error::Code;
use crate::feedback::table::PolicyTable;
use crate::serve::http1;
use crate::serve::listener::Listener;
use crate::tools::registry::Registry;
use crate::tools::{ToolContext, error_body};

pub mod front;
pub mod health;
pub mod metrics;
pub mod sql;
pub mod threshold;
pub mod tools;
pub mod versions;

/// Longest accepted body, in bytes. The input of a tool is a handful of short fields.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Seconds after which a caller may try again.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// What the handlers share.
#[derive(Debug, Clone)]
struct HttpState {
    registry: Arc<Registry>,
    context: ToolContext,
    feeds: Feeds,
    metrics: Metrics,
}

/// What changes while Echo runs.
#[derive(Debug, Clone)]
pub struct Feeds {
    /// Number of the last event that the detector has taken in.
    pub judged: watch::Receiver<u64>,
    /// What agents get.
    pub policies: watch::Receiver<Arc<PolicyTable>>,
    /// What decides whether Echo is ready.
    pub readiness: Readiness,
}

/// The routes.
pub fn router(registry: Registry, context: ToolContext, feeds: Feeds, metrics: Metrics) -> Router {
    let state = HttpState {
        registry: Arc::new(registry),
        context,
        feeds,
        metrics,
    };
    Router::new()
        .route("/api/v1/tools/list", get(tools::list))
        .route("/api/v1/tools/{name}", post(tools::call))
        .route("/api/v1/sql", get(sql::views).post(sql::run))
        .route("/api/v1/threshold", get(threshold::threshold))
        .route("/api/v1/health", get(health::health))
        .route("/api/versions", get(versions::versions))
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .method_not_allowed_fallback(no_such_route)
        .fallback(no_such_route)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn(refuse_foreign_names))
        .with_state(state)
}

/// Serves `router` until `shutdown` ends, then lets requests in flight finish.
pub async fn serve(listener: Listener, router: Router, shutdown: impl Future<Output = ()> + Send) {
    http1::serve(listener, router, shutdown).await;
}

/// A page on the web can point a name of its own at this machine and have a browser ask here. Such a request carries
/// that name; honest ones carry an address or `localhost`.
pub(super) async fn refuse_foreign_names(request: Request, next: Next) -> Response {
    if is_called_by_address(request.headers()) {
        return next.run(request).await;
    }
    let message = "ask by an IP address or localhost; other names are not served";
    failure(Code::Forbidden, error_body(Code::Forbidden, message))
}

fn is_called_by_address(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else {
        return true;
    };
    let authority = host
        .to_str()
        .ok()
        .and_then(|host| host.parse::<Authority>().ok());
    authority.is_some_and(|authority| {
        let name = authority.host();
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
    })
}

async fn no_such_route(method: Method, uri: Uri) -> Response {
    let message = format!("nothing answers {method} {}", uri.path());
    failure(Code::NotFound, error_body(Code::NotFound, &message))
}

/// A response with JSON text, ended by a line feed.
fn success(mut json: String) -> Response {
    json.push('\n');
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, json).into_response()
}

/// A response with an error.
fn failure(code: Code, body: Value) -> Response {
    let status = StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = success(body.to_string());
    *response.status_mut() = status;
    if matches!(code, Code::Busy | Code::TooMany) {
        response
            .headers_mut()
            .insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    response
}

#[cfg(test)]
mod tests;
