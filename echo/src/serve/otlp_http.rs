//! The listener for OTLP over HTTP (port 4318 by default).

use std::future::Future;
use std::io;

use tokio::net::TcpListener;

use crate::ingest::accept::Ingest;
use crate::ingest::otlp::http::router;

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
    axum::serve(listener, router(ingest))
        .with_graceful_shutdown(shutdown)
        .await?;
    Ok(())
}
