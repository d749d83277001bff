//! HTML pages: an overview of all clusters, and a page for each. Rendered on the server, without
//! scripts.
//!
//! The figures come from the tools, called with the permissions of the visitor. `status` summarizes
//! them; the other modules render them to HTML, with every text escaped.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::{get, post};
use echo_core::error::Coded;
use echo_tools::ToolError;
use echo_tools::registry::Registry;
use maud::Markup;

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
mod overview;
mod status;

use client::{ToolClient, WindowQuery};
use layout::Visitor;
use login::{login, logout, sign_in};

/// State of the pages.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    /// The tools.
    pub(super) registry: Arc<Registry>,
    /// Contexts of tool calls.
    pub(super) contexts: ToolContexts,
    /// Middleware, for authentication.
    pub(super) middleware: Middleware,
}

/// Builds the routes of the pages.
pub(super) fn routes(pages: Pages) -> Router {
    Router::new()
        .route("/", get(overview))
        .route("/clusters/{name}", get(cluster))
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

async fn overview(State(pages): State<Pages>, request_context: RequestContext) -> Response {
    let client = ToolClient::new(&pages, &request_context);
    let page = Box::pin(overview::page(&client));
    let page = client.with_deadline(page).await;
    render("Clusters", page, &pages, &request_context)
}

async fn cluster(
    State(pages): State<Pages>,
    Path(name): Path<String>,
    Query(window): Query<WindowQuery>,
    request_context: RequestContext,
) -> Response {
    let client = ToolClient::new(&pages, &request_context);
    let page = Box::pin(cluster::page(&client, &name, &window));
    let page = client.with_deadline(page).await;
    render(&name, page, &pages, &request_context)
}

fn render(
    title: &str,
    page: Result<Markup, ToolError>,
    pages: &Pages,
    request_context: &RequestContext,
) -> Response {
    let visitor = Visitor {
        name: &request_context.caller.id,
        is_signed_in: !pages.middleware.auth.is_disabled(),
    };
    match page {
        Ok(body) => layout::page(title, Some(&visitor), body),
        Err(error) => {
            log_internal_error("page", &error, request_context.id.as_ref());
            failure(error.code(), error.body())
        }
    }
}
