//! The listener for OTLP over HTTP (port 4318 by default). Web pages do not send measurements: what
//! they send is turned down.

use axum::middleware::from_fn_with_state;

use crate::audit::audited_refusals;
use crate::auth::only_writers;
use crate::connections::{self, Manner, Speech};
use crate::listener::Listener;
use crate::middleware::Terms;
use crate::origin::refuse_pages;
use crate::tls::Encryption;
use echo_ingest::accept::Ingest;
use echo_ingest::otlp::http::router;

/// Serves until `shutdown` ends, then lets requests in flight finish.
pub async fn serve(
    listener: Listener,
    ingest: Ingest,
    (terms, encryption): (Terms, Encryption),
    shutdown: impl Future<Output = ()> + Send,
) {
    let router = router(ingest)
        .layer(from_fn_with_state(terms.gate, only_writers))
        .layer(from_fn_with_state(terms.callers, refuse_pages))
        .layer(terms.panics.over_http())
        .layer(from_fn_with_state(terms.auditing, audited_refusals));
    let manner = Manner {
        encryption,
        speech: Speech::Http1,
    };
    connections::serve(listener, router, manner, shutdown).await;
}
