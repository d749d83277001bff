//! What a person looks at: every cluster on one page, and each on its own. Rendered here, whole, without scripts.
//!
//! The numbers are those of the tools, asked in the name of whoever looks. `status` says what they mean; the modules beside
//! it say it in HTML, in which every text is escaped where it is put.

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

use crate::middleware::Terms;
use crate::request::note;
use crate::request_context::Asking;
use crate::response::{Told, failure};
use crate::session::{LOGIN_PATH, wants_page};
use crate::tool_context::Contexts;

mod bars;
mod client;
mod cluster;
mod format;
mod layout;
mod login;
mod overview;
mod status;

use client::{Asked, Questions};
use layout::Visitor;
use login::{login, logout, sign_in};

/// What the pages are made from.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    /// The tools.
    pub(super) registry: Arc<Registry>,
    /// What they work with.
    pub(super) contexts: Contexts,
    /// Who is let in.
    pub(super) terms: Terms,
}

/// The routes of pages.
pub(super) fn routes(pages: Pages) -> Router {
    Router::new()
        .route("/", get(overview))
        .route("/clusters/{name}", get(cluster))
        .route(LOGIN_PATH, get(login).post(sign_in))
        .route("/logout", post(logout))
        .with_state(pages)
}

/// Says an error as a page where somebody looks at one. The outermost layer, because whoever turns a request down says it in
/// JSON.
pub(super) async fn in_html(request: Request, next: Next) -> Response {
    let wants_page = wants_page(&request);
    let mut response = next.run(request).await;
    let told = response.extensions_mut().remove::<Told>();
    let Some(Told(body)) = told.filter(|_| wants_page) else {
        return response;
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let (headers, page) = layout::problem(parts.status, &body);
    parts.headers.extend(headers);
    Response::from_parts(parts, Body::from(page))
}

async fn overview(State(pages): State<Pages>, asking: Asking) -> Response {
    let questions = Questions::new(&pages, &asking);
    let page = Box::pin(overview::page(&questions));
    let page = questions.in_time(page).await;
    shown("Clusters", (page, &pages), &asking)
}

async fn cluster(
    State(pages): State<Pages>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
    asking: Asking,
) -> Response {
    let questions = Questions::new(&pages, &asking);
    let page = Box::pin(cluster::page(&questions, &name, &asked));
    let page = questions.in_time(page).await;
    shown(&name, (page, &pages), &asking)
}

fn shown(
    title: &str,
    (page, pages): (Result<Markup, ToolError>, &Pages),
    asking: &Asking,
) -> Response {
    let visitor = Visitor {
        name: &asking.caller.id,
        is_signed_in: !pages.terms.gate.asks_nobody(),
    };
    match page {
        Ok(body) => layout::page(title, Some(&visitor), body),
        Err(error) => {
            note("page", &error, asking.id.as_ref());
            failure(error.code(), error.body())
        }
    }
}
