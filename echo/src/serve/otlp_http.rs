//! The listener for OTLP over HTTP (port 4318 by default). Web pages do not send measurements: what
//! they send is turned down.

use axum::middleware::from_fn_with_state;

use crate::ingest::accept::Ingest;
use crate::ingest::otlp::http::router;
use crate::serve::http::callers::{Callers, refuse_pages};
use crate::serve::http1;
use crate::serve::listener::Listener;

/// Serves until `shutdown` ends, then lets requests in flight finish.
pub async fn serve(
    listener: Listener,
    ingest: Ingest,
    callers: Callers,
    shutdown: impl Future<Output = ()> + Send,
) {
    let router = router(ingest).layer(from_fn_with_state(callers, refuse_pages));
    http1::serve(listener, router, shutdown).await;
}
