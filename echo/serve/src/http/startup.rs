//! What the HTTP listener answers before the database is open: that the process lives and is not ready.

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn;
use axum::routing::get;
use echo_core::error::Code;
use echo_tools::error_body;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::http::health::{alive, not_ready};
use crate::middleware::Terms;
use crate::pages;
use crate::response::failure;

/// Passes every request to the router that is in `routes` at that moment.
pub fn front(routes: watch::Receiver<Router>) -> Router {
    Router::new().fallback(move |request: Request| {
        let router = routes.borrow().clone();
        async move { router.oneshot(request).await }
    })
}

/// The routes while the database is opened: its log is read back, and its schema brought up to date.
pub fn starting(terms: &Terms) -> Router {
    let routes = Router::new()
        .route("/healthz", get(alive))
        .route(
            "/readyz",
            get(|| async { not_ready(&[("starting", "the database is being opened".to_owned())]) }),
        )
        .fallback(|| async {
            let message = "Echo is starting: the database is being opened";
            failure(Code::Busy, error_body(Code::Busy, message))
        });
    terms.guard(routes).layer(from_fn(pages::in_html))
}
