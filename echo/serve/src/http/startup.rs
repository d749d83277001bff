//! Responses of the HTTP listener before the database is open: alive and not ready.

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn;
use axum::routing::get;
use echo_core::error::Code;
use echo_tools::error_body;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::http::health::{live, not_ready};
use crate::middleware::Middleware;
use crate::pages;
use crate::response::failure;

/// Passes every request to the current router in `routes`.
pub fn current_router(routes: watch::Receiver<Router>) -> Router {
    Router::new().fallback(move |request: Request| {
        let router = routes.borrow().clone();
        async move { router.oneshot(request).await }
    })
}

/// Returns the routes while the database is opening: replaying its log and migrating its schema.
pub fn startup_router(middleware: &Middleware) -> Router {
    let routes = Router::new()
        .route("/healthz", get(live))
        .route(
            "/readyz",
            get(|| async { not_ready(&[("starting", "the database is being opened".to_owned())]) }),
        )
        .fallback(|| async {
            let message = "Echo is starting: the database is being opened";
            failure(Code::Busy, error_body(Code::Busy, message))
        });
    middleware.wrap(routes).layer(from_fn(pages::in_html))
}
