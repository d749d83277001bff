//! Serves a router on connections with limits on their number, idle time, handshake and headers.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::listener::{Connection, ListenConfig, Listener};
use crate::tls::{AcceptedStream, Encryption};
use echo_ingest::memory_account::ClientCertificate;

/// Idle time after which an HTTP/2 connection is pinged.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Longest time for the response to a ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Protocol of a connection without ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DefaultProtocol {
    /// HTTP/1, which limits the time for headers.
    Http1,
    /// HTTP/1 or HTTP/2, detected from the first bytes.
    Detect,
}

/// Options of a listener's connections.
#[derive(Debug, Clone)]
pub(super) struct ConnectionOptions {
    /// TLS of the connections.
    pub(super) encryption: Encryption,
    /// Protocol without ALPN.
    pub(super) default_protocol: DefaultProtocol,
}

/// Serves until `shutdown` completes, then finishes requests in flight.
pub(super) async fn serve(
    mut listener: Listener,
    router: Router,
    options: ConnectionOptions,
    shutdown: impl Future<Output = ()> + Send,
) {
    let config = listener.config();
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            connection = listener.accept() => {
                let task = serve_connection(connection, router.clone(), config, options.clone(), stopped.clone());
                connections.spawn(task);
            }
            // Removes finished tasks.
            Some(_ended) = connections.join_next() => {}
        }
    }
    // Closes the backlog, so that clients do not wait for a stopped server.
    drop(listener);
    stop.send_replace(true);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection until it closes or the server stops.
#[expect(
    clippy::significant_drop_tightening,
    reason = "the function holds the connection until its end"
)]
async fn serve_connection(
    connection: Connection,
    router: Router,
    config: ListenConfig,
    options: ConnectionOptions,
    mut stopped: watch::Receiver<bool>,
) {
    let peer = connection.peer();
    let handshake = AcceptedStream::accept(connection, &options.encryption);
    let stream = tokio::select! {
        stream = handshake => stream,
        _stop = stopped.wait_for(|stop| *stop) => return,
    };
    let Some(stream) = stream else {
        return;
    };
    let certificate = stream
        .certificate()
        .map(|certificate| ClientCertificate(certificate.names().into()));
    let router = router.map_request(move |mut request: Request<_>| {
        request.extensions_mut().insert(peer);
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        request
    });
    let builder = builder(config, stream.negotiated_http2(), options.default_protocol);
    let service = TowerToHyperService::new(router);
    let stream = TokioIo::new(stream.into_stream());
    let mut served = pin!(builder.serve_connection(stream, service));
    tokio::select! {
        // Errors of a connection are the client's to handle.
        _ended = served.as_mut() => return,
        _stop = stopped.wait_for(|stop| *stop) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ended = served.await;
}

fn builder(
    config: ListenConfig,
    negotiated_http2: Option<bool>,
    default_protocol: DefaultProtocol,
) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.headers);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.max_streams)
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    match (negotiated_http2, default_protocol) {
        (Some(true), _) => builder.http2_only(),
        (Some(false), _) | (None, DefaultProtocol::Http1) => builder.http1_only(),
        (None, DefaultProtocol::Detect) => builder,
    }
}
