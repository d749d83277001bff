//! HTML pages: an overview of all clusters, a page for each, one for each rank, and the runbook.
//! Rendered on the server, without scripts.
//!
//! The figures come from the tools, called with the permissions of the visitor. `status` summarizes
//! them; the other modules render them to HTML, with every text escaped.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{CONTENT_LENGTH, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::{get, post};
use echo_access::QueryPermission;
use echo_core::error::Coded;
use echo_tools::ToolError;
use echo_tools::registry::Registry;
use serde::Deserialize;

use crate::middleware::Middleware;
use crate::request::log_internal_error;
use crate::request_context::RequestContext;
use crate::response::{ErrorResponse, failure};
use crate::session::{LOGIN_PATH, wants_page};
use crate::tool_context::ToolContexts;

mod answer;
mod bars;
mod body;
mod client;
mod cluster;
mod format;
mod incident;
mod layout;
mod login;
mod open_incidents;
mod overview;
mod permalink;
mod rank;
mod runbook;
mod sharing;
mod status;
mod view_query;
mod window_query;

use body::{Body, Renewal};
use client::{RankInCluster, SharedMaps, ToolClient};
use layout::{Reload, Top, Visitor};
use login::{login, logout, sign_in};
use overview::search::OverviewQuery;
use sharing::Sharing;
use view_query::ViewQuery;
use window_query::WindowQuery;

/// Time after its last viewer for which a map is kept.
const MAPS_KEPT: Duration = Duration::from_mins(10);

/// State of the pages.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    /// The tools.
    pub(super) registry: Arc<Registry>,
    /// Contexts of tool calls.
    pub(super) contexts: ToolContexts,
    /// Middleware, for authentication.
    pub(super) middleware: Middleware,
    bodies: Sharing<BodyOfViewer, Body>,
    maps: SharedMaps,
}

impl Pages {
    /// Pages of the answers of these tools.
    pub(super) fn new(
        registry: Arc<Registry>,
        contexts: ToolContexts,
        middleware: Middleware,
    ) -> Self {
        let clock = &contexts.base().clock;
        Self {
            bodies: Sharing::new(Arc::clone(clock), Duration::ZERO),
            maps: Sharing::new(Arc::clone(clock), MAPS_KEPT),
            registry,
            contexts,
            middleware,
        }
    }

    /// Returns a page for the viewer of a request. It is made once for all who may see the same.
    async fn body(
        &self,
        page: Page,
        request_context: &RequestContext,
    ) -> Result<Arc<Body>, Arc<ToolError>> {
        let client = ToolClient::new(self, request_context);
        let key = BodyOfViewer {
            page: page.clone(),
            permission: request_context.caller.query.clone(),
        };
        let make = || async move {
            let body = Box::pin(page.body(&client));
            client.with_deadline(body).await
        };
        let is_whole = |body: &Body| !body.is_partial;
        self.bodies.get(key, is_whole, make).await
    }
}

/// A page that viewers share: all that its body depends on, apart from their permission.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Page {
    /// All clusters. Agents send to the URL `otlp`.
    Overview {
        otlp: Option<String>,
        query: OverviewQuery,
        view: ViewQuery,
    },
    /// One cluster.
    Cluster {
        name: String,
        window: WindowQuery,
        view: ViewQuery,
    },
    /// One incident, on the page of its cluster at that time.
    Incident {
        cluster: String,
        id: String,
        view: ViewQuery,
    },
    /// One rank.
    Rank {
        cluster: String,
        rank: u32,
        job: Option<String>,
        window: WindowQuery,
        view: ViewQuery,
    },
}

impl Page {
    async fn body(self, client: &ToolClient) -> Result<Body, ToolError> {
        match self {
            Self::Overview { otlp, query, view } => {
                let page = overview::page(client, otlp.as_deref(), &query, &view);
                Box::pin(page).await
            }
            Self::Cluster { name, window, view } => {
                let subject = cluster::Subject {
                    cluster: &name,
                    window: &window,
                    incident: None,
                    query: &view,
                };
                Box::pin(cluster::page(client, &subject)).await
            }
            Self::Incident { cluster, id, view } => {
                Box::pin(incident::page(client, (&cluster, &id), &view)).await
            }
            Self::Rank {
                cluster,
                rank,
                job,
                window,
                view,
            } => {
                let subject = RankInCluster {
                    cluster: &cluster,
                    rank,
                    job: job.as_deref(),
                };
                let page = rank::page(client, &subject, &window, &view);
                Ok(Body::whole(Box::pin(page).await?))
            }
        }
    }
}

/// A page as those see it who have this permission. Nothing else of a caller changes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BodyOfViewer {
    page: Page,
    permission: Option<QueryPermission>,
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
    Response::from_parts(parts, axum::body::Body::from(page))
}

async fn overview(
    State(pages): State<Pages>,
    (Query(query), Query(view)): (Query<OverviewQuery>, Query<ViewQuery>),
    uri: Uri,
    headers: HeaderMap,
    request_context: RequestContext,
) -> Response {
    let host = host(&uri, &headers);
    let otlp = pages.contexts.otlp().zip(host);
    let otlp = otlp.map(|(otlp, host)| otlp.url(&host));
    let page = Page::Overview {
        otlp,
        query,
        view: view.clone(),
    };
    let page = pages.body(page, &request_context).await;
    let frame = Frame {
        title: "Clusters",
        uri: Some(&uri),
        view: &view,
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
    (Query(window), Query(view)): (Query<WindowQuery>, Query<ViewQuery>),
    uri: Uri,
    request_context: RequestContext,
) -> Response {
    let title = name.clone();
    let page = Page::Cluster {
        name,
        window,
        view: view.clone(),
    };
    let page = pages.body(page, &request_context).await;
    let frame = Frame {
        title: &title,
        uri: Some(&uri),
        view: &view,
    };
    render(&frame, page, &pages, &request_context)
}

async fn incident(
    State(pages): State<Pages>,
    Path((cluster, id)): Path<(String, String)>,
    Query(view): Query<ViewQuery>,
    uri: Uri,
    request_context: RequestContext,
) -> Response {
    let title = format!("Incident {id} of {cluster}");
    let page = Page::Incident {
        cluster,
        id,
        view: view.clone(),
    };
    let page = pages.body(page, &request_context).await;
    let frame = Frame {
        title: &title,
        uri: Some(&uri),
        view: &view,
    };
    render(&frame, page, &pages, &request_context)
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
    (Query(window), Query(view)): (Query<WindowQuery>, Query<ViewQuery>),
    Query(JobQuery { job }): Query<JobQuery>,
    request_context: RequestContext,
) -> Response {
    let title = format!("Rank {rank} of {cluster}");
    let page = Page::Rank {
        cluster,
        rank,
        job,
        window,
        view: view.clone(),
    };
    let page = pages.body(page, &request_context).await;
    let frame = Frame {
        title: &title,
        uri: None,
        view: &view,
    };
    render(&frame, page, &pages, &request_context)
}

async fn runbook(
    State(pages): State<Pages>,
    Query(view): Query<ViewQuery>,
    request_context: RequestContext,
) -> Response {
    let frame = Frame {
        title: "Runbook",
        uri: None,
        view: &view,
    };
    let page = Ok(Arc::new(Body::whole(runbook::page())));
    render(&frame, page, &pages, &request_context)
}

/// What surrounds the body of a page.
struct Frame<'a> {
    title: &'a str,
    /// URL of a page that shows the current state, and is loaded again.
    uri: Option<&'a Uri>,
    view: &'a ViewQuery,
}

impl Frame<'_> {
    /// Returns the reloading of the page; `None` if it shows the past, or if the reader may be typing.
    fn reload(&self, renewal: Renewal) -> Option<Reload> {
        let uri = self.uri.filter(|_| !self.view.has_form())?;
        match renewal {
            Renewal::Never => None,
            Renewal::Usual => Some(Reload::from_uri(uri)),
            Renewal::Soon => Some(Reload::from_uri(uri).soon()),
        }
    }
}

fn render(
    frame: &Frame<'_>,
    page: Result<Arc<Body>, Arc<ToolError>>,
    pages: &Pages,
    request_context: &RequestContext,
) -> Response {
    let body = match page {
        Ok(body) => body,
        Err(error) => return failed(&error, request_context),
    };
    let visitor = Visitor {
        name: &request_context.caller.id,
        is_signed_in: !pages.middleware.auth.is_disabled(),
    };
    let reload = frame.reload(body.renewal);
    let top = Top {
        visitor: Some(&visitor),
        reload: reload.as_ref(),
        view: Some(frame.view),
    };
    layout::page(frame.title, &top, &body.markup)
}

fn failed(error: &ToolError, request_context: &RequestContext) -> Response {
    log_internal_error("page", error, request_context.id.as_ref());
    failure(error.code(), error.body())
}
