//! Serves a router over HTTP/1 on connections that are bounded in number and in the time for headers.

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

/// Connections at the same time; more wait to be let in.
const MAX_CONNECTIONS: usize = 16;

/// How long the headers of a request may take, and so how long a silent connection is kept.
const HEADERS: Duration = Duration::from_secs(10);

/// How long a whole connection is kept, so that those who read slowly leave their places to others.
const CONNECTION: Duration = Duration::from_mins(5);

/// How long requests have at the end.
const GRACE: Duration = Duration::from_secs(1);

/// How long nobody is let in after the system has refused to.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` ends, then lets requests in flight finish.
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
                    let served = one(stream, router.clone(), stopped.clone());
                    connections.spawn(timeout(CONNECTION, served));
                }
                Err(error) => {
                    tracing::warn!("the metrics endpoint lets nobody in: {error}");
                    sleep(PAUSE).await;
                }
            },
            // Connections that have ended are forgotten.
            Some(_ended) = connections.join_next() => {}
        }
    }
    // Nobody is kept waiting in the backlog of a server that has gone.
    drop(listener);
    stopping.send_replace(());
    let all_ended = async { while connections.join_next().await.is_some() {} };
    let _impatient = timeout(GRACE, all_ended).await;
}

/// One connection, until it ends or has been told to.
async fn one(stream: TcpStream, router: Router, mut stopped: watch::Receiver<()>) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS);
    let service = TowerToHyperService::new(router);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // What goes wrong on a connection is its sender's to know.
        _ended = served.as_mut() => return,
        _stop = stopped.changed() => {}
    }
    served.as_mut().graceful_shutdown();
    let _ended = served.await;
}
