//! The listener for OTLP over HTTP (port 4318 by default). As at the HTTP API, requests for another host are turned down.

use std::future::Future;
use std::io;

use axum::middleware::from_fn;
use tokio::net::TcpListener;

use crate::ingest::accept::Ingest;
use crate::ingest::otlp::http::router;
use crate::serve::http::refuse_foreign_names;

/// The listener failed.
#[derive(Debug, thiserror::Error)]
#[error("the OTLP/HTTP listener failed")]
pub struct OtlpHttpServeError(#[from] io::Error);

/// Serves until `shutdown` ends, then lets requests in flight finish.
pub async fn serve(
    listener: TcpListener,
    ingest: Ingest,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), OtlpHttpServeError> {
    let router = router(ingest).layer(from_fn(refuse_foreign_names));
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown)
        .await?;
    Ok(())
}
