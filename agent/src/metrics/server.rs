//! HTTP/1 server for a router, with limits on the number of connections and on the time to receive
//! headers.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Maximum number of connections at the same time; further ones wait in the backlog.
const MAX_CONNECTIONS: usize = 16;

/// Timeout for the headers of a request, and so for an idle connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum lifetime of a connection, so that slow readers do not occupy all connections.
const CONNECTION_LIFETIME: Duration = Duration::from_mins(5);

/// Time for requests in flight to finish at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after `accept` has failed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves until `stop` resolves, then lets requests in flight finish.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send,
) {
    let (stopping, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _peer)) => {
                    let served = serve_connection(stream, router.clone(), stopped.clone());
                    connections.spawn(timeout(CONNECTION_LIFETIME, served));
                }
                Err(error) => {
                    tracing::warn!("metrics endpoint cannot accept a connection: {error}");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            // Reaps the tasks of closed connections.
            Some(_ended) = connections.join_next() => {}
        }
    }
    // Connections in the backlog are refused instead of left waiting.
    drop(listener);
    stopping.send_replace(());
    let all_ended = async { while connections.join_next().await.is_some() {} };
    let _timed_out = timeout(SHUTDOWN_TIMEOUT, all_ended).await;
}

/// Serves one connection until it closes or the server shuts down.
async fn serve_connection(stream: TcpStream, router: Router, mut stopped: watch::Receiver<()>) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    let service = TowerToHyperService::new(router);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // Errors of a connection concern its client only.
        _ended = served.as_mut() => return,
        _stop = stopped.changed() => {}
    }
    served.as_mut().graceful_shutdown();
    let _ended = served.await;
}
