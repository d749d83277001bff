//! The HTTP API: the tools of the registry, and endpoints for operation.
//!
//! | path | method | response |
//! |---|---|---|
//! | `/api/v1/tools`, `/api/v1/tools/list` | GET | every tool with its input and output schemas |
//! | `/api/v1/tools/{name}` | POST, GET | the tool's answer, or a picture of it; the input is the body or the query, and may be empty |
//! | `/api/v1/openapi.json` | GET | this API as an OpenAPI document, generated from the registry |
//! | `/mcp`, `/mcp/compat` | POST | the Model Context Protocol, with dots or underscores in tool names |
//! | `/api/v1/clusters` | GET | the clusters that the caller may query, with what reported in each |
//! | `/api/v1/sql` | POST, GET | POST: the rows of one SELECT, as the tool `run_analysis` returns them; GET: the views it can query |
//! | `/api/v1/cost.csv?day=`, `/api/v1/cost.json?day=` | GET | GPU costs by hour and node, in FOCUS columns |
//! | `/api/v1/trace.json?rank=` | GET | the trace of a rank and its peer, for ui.perfetto.dev |
//! | `/api/v1/incident.tar.gz?incident=` | GET | everything that is known of an incident, as an archive |
//! | `/api/v1/threshold?cluster_id=` | GET | health score threshold of a cluster for Ingero agents, in the body and as headers |
//! | `/api/v1/health` | GET | status, and numbers of stored and analyzed events |
//! | `/api/versions` | GET | versions of the API |
//! | `/`, `/clusters/{name}`, `/clusters/{name}/ranks/{rank}` | GET | HTML pages |
//! | `/login`, `/logout` | GET, POST | stores a token in a cookie, and removes it |
//! | `/metrics` | GET | metrics for Prometheus |
//! | `/healthz`, `/readyz` | GET | liveness; readiness for events, with reasons |
//!
//! Every error is `{"error":{"code","message","request_id"}}`, with `details` for invalid input;
//! the status comes from the table in [`echo_core::error`].

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::middleware::from_fn;
use axum::response::Response;
use axum::routing::get;
use echo_core::error::Code;
use echo_core::policy_table::PolicyTable;
use echo_tools::error_body;
use echo_tools::registry::Registry;
use tokio::sync::watch;

use self::health::Readiness;
use self::metrics::Metrics;
use crate::connections::{self, ConnectionOptions, DefaultProtocol};
use crate::listener::Listener;
use crate::mcp::{self, ToolNames};
use crate::middleware::Middleware;
use crate::pages::{self, Pages};
use crate::request::MAX_BODY_BYTES;
use crate::response::failure;
use crate::tls::Encryption;
use crate::tool_context::ToolContexts;

pub mod clusters;
pub mod cost;
pub mod health;
pub mod incident_bundle;
pub mod metrics;
pub mod openapi;
pub mod rank_trace;
pub mod sql;
pub mod startup;
pub mod threshold;
pub mod tools;
pub mod versions;

/// Path of the list of tools; each tool is below it.
const TOOLS_ENDPOINT: &str = "/api/v1/tools";

/// Path of SQL.
const SQL_ENDPOINT: &str = "/api/v1/sql";

/// State shared by the handlers.
#[derive(Debug, Clone)]
struct HttpState {
    registry: Arc<Registry>,
    contexts: ToolContexts,
    runtime: RuntimeState,
    metrics: Metrics,
}

/// State that changes at run time.
#[derive(Debug, Clone)]
pub struct RuntimeState {
    /// Number of the last event that the detector has processed.
    pub judged: watch::Receiver<u64>,
    /// Policies for agents.
    pub policies: watch::Receiver<Arc<PolicyTable>>,
    /// Inputs of the readiness check.
    pub readiness: Readiness,
}

/// Builds the routes.
pub fn router(
    registry: Registry,
    contexts: impl Into<ToolContexts>,
    (runtime, metrics): (RuntimeState, Metrics),
    middleware: &Middleware,
) -> Router {
    let contexts = contexts.into();
    let registry = Arc::new(registry);
    let mcp = mcp::route("/mcp", &registry, &contexts, ToolNames::Dotted);
    let mcp_compat = mcp::route("/mcp/compat", &registry, &contexts, ToolNames::Plain);
    let pages = Pages::new(Arc::clone(&registry), contexts.clone(), middleware.clone());
    let pages = pages::routes(pages);
    let state = HttpState {
        registry,
        contexts,
        runtime,
        metrics,
    };
    let routes = Router::new()
        .route(TOOLS_ENDPOINT, get(tools::list))
        .route("/api/v1/tools/list", get(tools::list))
        .route("/api/v1/tools/{name}", get(tools::read).post(tools::call))
        .route("/api/v1/openapi.json", get(openapi::openapi))
        .route("/api/v1/clusters", get(clusters::clusters))
        .route(SQL_ENDPOINT, get(sql::views).post(sql::run))
        .route("/api/v1/cost.csv", get(cost::csv))
        .route("/api/v1/cost.json", get(cost::json))
        .route("/api/v1/trace.json", get(rank_trace::json))
        .route("/api/v1/incident.tar.gz", get(incident_bundle::archive))
        .route("/api/v1/threshold", get(threshold::threshold))
        .route("/api/v1/health", get(health::health))
        .route("/api/versions", get(versions::versions))
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_such_route)
        .with_state(state)
        .merge(pages.method_not_allowed_fallback(no_such_method))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .merge(mcp)
        .merge(mcp_compat);
    middleware.wrap(routes).layer(from_fn(pages::in_html))
}

/// Serves `router` until `shutdown` completes, then finishes requests in flight.
pub async fn serve(
    listener: Listener,
    router: Router,
    encryption: Encryption,
    shutdown: impl Future<Output = ()> + Send,
) {
    let options = ConnectionOptions {
        encryption,
        default_protocol: DefaultProtocol::Http1,
    };
    connections::serve(listener, router, options, shutdown).await;
}

async fn no_such_route(method: Method, uri: Uri) -> Response {
    let message = format!("no such path: {method} {}", uri.path());
    failure(Code::NotFound, error_body(Code::NotFound, &message))
}

async fn no_such_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not support {method}", uri.path());
    failure(Code::WrongMethod, error_body(Code::WrongMethod, &message))
}

#[cfg(test)]
mod tests;
