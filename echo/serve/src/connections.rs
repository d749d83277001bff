//! Serves a router on connections that are bounded in number, in silence, and in the time for handshakes and headers.

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
use crate::tls::{Encryption, Secured};
use echo_ingest::memory_account::ClientCertificate;

/// How long a connection over HTTP/2 may be silent before it is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long a sign of life may take.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What is spoken where nothing is agreed on in a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// HTTP/1, which waits for headers no longer than it may.
    Http1,
    /// HTTP/1 or HTTP/2, as the first bytes say.
    Either,
}

/// How connections are served.
#[derive(Debug, Clone)]
pub(super) struct Manner {
    /// How they are encrypted.
    pub(super) encryption: Encryption,
    /// What is spoken.
    pub(super) speech: Speech,
}

/// Serves until `shutdown` ends, then lets requests in flight finish.
pub(super) async fn serve(
    mut listener: Listener,
    router: Router,
    manner: Manner,
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
                let one = one(connection, router.clone(), (config, manner.clone()), stopped.clone());
                connections.spawn(one);
            }
            // Tasks that have ended are forgotten.
            Some(_ended) = connections.join_next() => {}
        }
    }
    // Nobody is kept waiting in the backlog of a server that has gone.
    drop(listener);
    stop.send_replace(true);
    while connections.join_next().await.is_some() {}
}

/// One connection, until it ends or has been told to.
#[expect(
    clippy::significant_drop_tightening,
    reason = "the connection is what the function is about, to its end"
)]
async fn one(
    connection: Connection,
    router: Router,
    (config, manner): (ListenConfig, Manner),
    mut stopped: watch::Receiver<bool>,
) {
    let peer = connection.peer();
    let handshake = Secured::after_handshake(connection, &manner.encryption);
    let secured = tokio::select! {
        secured = handshake => secured,
        _stop = stopped.wait_for(|stop| *stop) => return,
    };
    let Some(secured) = secured else {
        return;
    };
    let certificate = secured
        .certificate()
        .map(|certificate| ClientCertificate(certificate.names().into()));
    let router = router.map_request(move |mut request: Request<_>| {
        request.extensions_mut().insert(peer);
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        request
    });
    let builder = builder(config, (secured.speaks_http2(), manner.speech));
    let service = TowerToHyperService::new(router);
    let stream = TokioIo::new(secured.into_stream());
    let mut served = pin!(builder.serve_connection(stream, service));
    tokio::select! {
        // What goes wrong on a connection is its sender's to know.
        _ended = served.as_mut() => return,
        _stop = stopped.wait_for(|stop| *stop) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ended = served.await;
}

fn builder(
    config: ListenConfig,
    (speaks_http2, speech): (Option<bool>, Speech),
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
    match (speaks_http2, speech) {
        (Some(true), _) => builder.http2_only(),
        (Some(false), _) | (None, Speech::Http1) => builder.http1_only(),
        (None, Speech::Either) => builder,
    }
}
