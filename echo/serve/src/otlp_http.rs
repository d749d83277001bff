//! The OTLP/HTTP listener (port 4318 by default). Requests from web pages are rejected.

use axum::middleware::from_fn_with_state;

use crate::audit::audit_refusals;
use crate::auth::authorize_ingest;
use crate::connections::{self, ConnectionOptions, DefaultProtocol};
use crate::listener::Listener;
use crate::middleware::Middleware;
use crate::origin::check_origin;
use crate::tls::Encryption;
use echo_ingest::accept::Ingest;
use echo_ingest::otlp::http::router;

/// Serves until `shutdown` completes, then finishes requests in flight.
pub async fn serve(
    listener: Listener,
    ingest: Ingest,
    middleware: Middleware,
    encryption: Encryption,
    shutdown: impl Future<Output = ()> + Send,
) {
    let router = router(ingest)
        .layer(from_fn_with_state(middleware.auth, authorize_ingest))
        .layer(from_fn_with_state(middleware.origins, check_origin))
        .layer(middleware.panics.http_layer())
        .layer(from_fn_with_state(middleware.audit, audit_refusals));
    let options = ConnectionOptions {
        encryption,
        default_protocol: DefaultProtocol::Http1,
    };
    connections::serve(listener, router, options, shutdown).await;
}
