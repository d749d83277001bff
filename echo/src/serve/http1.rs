//! Serves a router over HTTP/1 on connections that are bounded in number, in silence and in the time for headers.

use std::pin::pin;

use axum::Router;
use axum::http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::serve::listener::{Connection, ListenConfig, Listener};

/// Serves until `shutdown` ends, then lets requests in flight finish.
pub(super) async fn serve(
    mut listener: Listener,
    router: Router,
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
                connections.spawn(one(connection, router.clone(), config, stopped.clone()));
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
    config: ListenConfig,
    mut stopped: watch::Receiver<bool>,
) {
    let peer = connection.peer();
    let service = router.map_request(move |mut request: Request<_>| {
        request.extensions_mut().insert(peer);
        request
    });
    let service = TowerToHyperService::new(service);
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.headers);
    let mut served = pin!(builder.serve_connection(TokioIo::new(connection), service));
    tokio::select! {
        // What goes wrong on a connection is its sender's to know.
        _ended = served.as_mut() => return,
        _stop = stopped.wait_for(|stop| *stop) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ended = served.await;
}
