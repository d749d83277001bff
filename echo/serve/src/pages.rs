//! HTML pages: an overview of all clusters, a page for each, one for each rank, and the runbook.
//! Rendered on the server, without scripts.
//!
//! The figures come from the tools, called with the permissions of the visitor. `status` summarizes
//! them; the other modules render them to HTML, with every text escaped.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{CONTENT_LENGTH, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use echo_core::error::Coded;
use echo_tools::ToolError;
use echo_tools::registry::Registry;
use maud::Markup;
use serde::Deserialize;

use crate::middleware::Middleware;
use crate::request::log_internal_error;
use crate::request_context::RequestContext;
use crate::response::{ErrorResponse, failure};
use crate::session::{LOGIN_PATH, wants_page};
use crate::tool_context::ToolContexts;

mod bars;
mod client;
mod cluster;
mod format;
mod layout;
mod login;
mod open_incidents;
mod overview;
mod permalink;
mod rank;
mod runbook;
mod shared_maps;
mod status;
mod window_query;

use client::{RankInCluster, ToolClient};
use layout::{Reload, Top, Visitor};
use login::{login, logout, sign_in};
use shared_maps::SharedMaps;
use window_query::WindowQuery;

/// State of the pages.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    /// The tools.
    pub(super) registry: Arc<Registry>,
    /// Contexts of tool calls.
    pub(super) contexts: ToolContexts,
    /// Middleware, for authentication.
    pub(super) middleware: Middleware,
    maps: SharedMaps,
}

impl Pages {
    /// Pages of the answers of these tools.
    pub(super) fn new(
        registry: Arc<Registry>,
        contexts: ToolContexts,
        middleware: Middleware,
    ) -> Self {
        Self {
            registry,
            contexts,
            middleware,
            maps: SharedMaps::default(),
        }
    }
}

/// Builds the routes of the pages.
pub(super) fn routes(pages: Pages) -> Router {
    Router::new()
        .route("/", get(overview))
        .route("/clusters/{name}", get(cluster))
        .route("/clusters/{name}/ranks/{rank}", get(rank))
        .route("/clusters/{name}/incidents/{id}", get(incident))
        .route(runbook::PATH, get(runbook))
        .route(LOGIN_PATH, get(login).post(sign_in))
        .route("/logout", post(logout))
        .with_state(pages)
}

/// Renders errors as HTML for browsers. This is the outermost layer, because all inner layers
/// return JSON errors.
pub(super) async fn in_html(request: Request, next: Next) -> Response {
    let wants_page = wants_page(&request);
    let mut response = next.run(request).await;
    let error = response.extensions_mut().remove::<ErrorResponse>();
    let Some(ErrorResponse(body)) = error.filter(|_| wants_page) else {
        return response;
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let (headers, page) = layout::error_page(parts.status, &body);
    parts.headers.extend(headers);
    Response::from_parts(parts, Body::from(page))
}

async fn overview(
    State(pages): State<Pages>,
    uri: Uri,
    headers: HeaderMap,
    request_context: RequestContext,
) -> Response {
    let client = ToolClient::new(&pages, &request_context);
    let host = host(&uri, &headers);
    let otlp = pages.contexts.otlp().zip(host);
    let otlp = otlp.map(|(otlp, host)| otlp.url(&host));
    let page = Box::pin(overview::page(&client, otlp.as_deref()));
    let page = client.with_deadline(page).await;
    let frame = Frame {
        title: "Clusters",
        reload: Some(&Reload::from_uri(&uri)),
    };
    render(&frame, page, &pages, &request_context)
}

/// Returns the host by which the visitor reaches this instance, without the port.
fn host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let header = headers.get(HOST).and_then(|host| host.to_str().ok());
    let header = header.and_then(|host| host.parse::<Authority>().ok());
    let authority = uri.authority().cloned().or(header)?;
    Some(authority.host().to_owned())
}

async fn cluster(
    State(pages): State<Pages>,
    Path(name): Path<String>,
    Query(window): Query<WindowQuery>,
    uri: Uri,
    request_context: RequestContext,
) -> Response {
    let client = ToolClient::new(&pages, &request_context);
    let page = Box::pin(cluster::page(&client, &name, &window));
    let page = client.with_deadline(page).await;
    let is_awaited = page.as_ref().is_ok_and(|page| page.is_awaited);
    let reload = Reload::from_uri(&uri).soon_if(is_awaited);
    let page = page.map(|page| page.body);
    let frame = Frame {
        title: &name,
        // The form for another window is filled in by hand, and stays as it is.
        reload: (window.from.is_empty() && window.to.is_empty()).then_some(&reload),
    };
    render(&frame, page, &pages, &request_context)
}

/// Redirects to the page of the cluster at the time of an incident.
async fn incident(
    State(pages): State<Pages>,
    Path((cluster, id)): Path<(String, String)>,
    request_context: RequestContext,
) -> Response {
    let client = ToolClient::new(&pages, &request_context);
    let target = Box::pin(permalink::target(&client, &cluster, &id));
    match client.with_deadline(target).await {
        Ok(target) => Redirect::to(&target).into_response(),
        Err(error) => failed(&error, &request_context),
    }
}

/// Job of a rank, from the query.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobQuery {
    job: Option<String>,
}

async fn rank(
    State(pages): State<Pages>,
    Path((cluster, rank)): Path<(String, u32)>,
    Query(window): Query<WindowQuery>,
    Query(JobQuery { job }): Query<JobQuery>,
    request_context: RequestContext,
) -> Response {
    let client = ToolClient::new(&pages, &request_context);
    let subject = RankInCluster {
        cluster: &cluster,
        rank,
        job: job.as_deref(),
    };
    let page = Box::pin(rank::page(&client, &subject, &window));
    let page = client.with_deadline(page).await;
    let frame = Frame {
        title: &format!("Rank {rank} of {cluster}"),
        reload: None,
    };
    render(&frame, page, &pages, &request_context)
}

async fn runbook(State(pages): State<Pages>, request_context: RequestContext) -> Response {
    let frame = Frame {
        title: "Runbook",
        reload: None,
    };
    render(&frame, Ok(runbook::page()), &pages, &request_context)
}

/// Title and reloading of a page.
struct Frame<'a> {
    title: &'a str,
    reload: Option<&'a Reload>,
}

fn render(
    frame: &Frame<'_>,
    page: Result<Markup, ToolError>,
    pages: &Pages,
    request_context: &RequestContext,
) -> Response {
    let visitor = Visitor {
        name: &request_context.caller.id,
        is_signed_in: !pages.middleware.auth.is_disabled(),
    };
    let top = Top {
        visitor: Some(&visitor),
        reload: frame.reload,
    };
    match page {
        Ok(body) => layout::page(frame.title, &top, body),
        Err(error) => failed(&error, request_context),
    }
}

fn failed(error: &ToolError, request_context: &RequestContext) -> Response {
    log_internal_error("page", error, request_context.id.as_ref());
    failure(error.code(), error.body())
}
