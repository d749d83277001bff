//! The HTTP API: a view of the tool registry, and what probes ask.
//!
//! | path | method | answer |
//! |---|---|---|
//! | `/api/v1/tools/list` | GET | every tool with the schemas of its input and answer |
//! | `/api/v1/tools/{name}` | POST, GET | the tool's answer, or a picture of it; the body or the query is its input, and may be empty |
//! | `/api/v1/openapi.json` | GET | this API as an OpenAPI document, made from the registry |
//! | `/mcp`, `/mcp/compat` | POST | the Model Context Protocol, with dots in the names of tools or with underscores |
//! | `/api/v1/sql` | POST, GET | the rows of one SELECT, as the tool `run_analysis` gives them; what SELECT can ask about |
//! | `/api/v1/cost.csv?day=`, `/api/v1/cost.json?day=` | GET | what GPUs cost by hour and node, in the columns of FOCUS |
//! | `/api/v1/threshold?cluster_id=` | GET | what Ingero agents compare their health scores with, in the body and as headers |
//! | `/api/v1/health` | GET | that Echo runs, how much it has stored, and how much of that the detector has taken in |
//! | `/api/versions` | GET | which versions of the API there are |
//! | `/`, `/clusters/{name}` | GET | pages for people |
//! | `/login`, `/logout` | GET, POST | what keeps a token in a browser, and has it forget it |
//! | `/metrics` | GET | what Echo says of itself, for Prometheus |
//! | `/healthz`, `/readyz` | GET | that the process lives; whether events are taken, and if not, why |
//!
//! Every error is `{"error":{"code","message","request_id"}}`, with `details` when the input is wrong; the status comes
//! from the one table in [`echo_core::error`].

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
use crate::connections::{self, Manner, Speech};
use crate::listener::Listener;
use crate::mcp::{self, Names};
use crate::middleware::Terms;
use crate::pages::{self, Pages};
use crate::request::MAX_BODY_BYTES;
use crate::response::failure;
use crate::tls::Encryption;
use crate::tool_context::Contexts;

pub mod cost;
pub mod health;
pub mod metrics;
pub mod openapi;
pub mod sql;
pub mod startup;
pub mod threshold;
pub mod tools;
pub mod versions;

/// What the handlers share.
#[derive(Debug, Clone)]
struct HttpState {
    registry: Arc<Registry>,
    contexts: Contexts,
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
pub fn router(
    registry: Registry,
    contexts: impl Into<Contexts>,
    (feeds, metrics): (Feeds, Metrics),
    terms: &Terms,
) -> Router {
    let contexts = contexts.into();
    let registry = Arc::new(registry);
    let speak = |names| mcp::service(Arc::clone(&registry), contexts.clone(), names);
    let (mcp, mcp_compat) = (speak(Names::Dotted), speak(Names::Plain));
    let pages = pages::routes(Pages {
        registry: Arc::clone(&registry),
        contexts: contexts.clone(),
        terms: terms.clone(),
    });
    let state = HttpState {
        registry,
        contexts,
        feeds,
        metrics,
    };
    let routes = Router::new()
        .route("/api/v1/tools/list", get(tools::list))
        .route("/api/v1/tools/{name}", get(tools::read).post(tools::call))
        .route("/api/v1/openapi.json", get(openapi::openapi))
        .route("/api/v1/sql", get(sql::views).post(sql::run))
        .route("/api/v1/cost.csv", get(cost::csv))
        .route("/api/v1/cost.json", get(cost::json))
        .route("/api/v1/threshold", get(threshold::threshold))
        .route("/api/v1/health", get(health::health))
        .route("/api/versions", get(versions::versions))
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_such_route)
        .with_state(state)
        .merge(pages.method_not_allowed_fallback(no_such_method))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .route_service("/mcp", mcp)
        .route_service("/mcp/compat", mcp_compat);
    terms.guard(routes).layer(from_fn(pages::in_html))
}

/// Serves `router` until `shutdown` ends, then lets requests in flight finish.
pub async fn serve(
    listener: Listener,
    router: Router,
    encryption: Encryption,
    shutdown: impl Future<Output = ()> + Send,
) {
    let manner = Manner {
        encryption,
        speech: Speech::Http1,
    };
    connections::serve(listener, router, manner, shutdown).await;
}

async fn no_such_route(method: Method, uri: Uri) -> Response {
    let message = format!("nothing answers {method} {}", uri.path());
    failure(Code::NotFound, error_body(Code::NotFound, &message))
}

async fn no_such_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not answer {method}", uri.path());
    failure(Code::WrongMethod, error_body(Code::WrongMethod, &message))
}

#[cfg(test)]
mod tests;
