#![expect(
    clippy::disallowed_methods,
    reason = "the test plays the part of `app`, which owns the tasks"
)]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Connections, ListenConfig, Listener};
use crate::http;
use crate::tls::Encryption;
use echo_ingest::memory_account::Peer;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";

/// A server that responds with the client's address.
struct Server {
    address: SocketAddr,
    seen: Connections,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(config: ListenConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Connections::default();
        let listener = Listener::new(listener, config, seen.clone());
        let peer_address =
            |Extension(Peer(peer)): Extension<Peer>| async move { peer.ip().to_string() };
        let router = Router::new().route("/", get(peer_address));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(http::serve(listener, router, Encryption::None, async {
            stopped.await.unwrap_or(());
        }));
        Self {
            address,
            seen,
            stop,
            task,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Sends one request on a connection and returns the response; `None` if the server closes it.
async fn send_request(connection: &mut TcpStream) -> String {
    // Writing may fail already if the connection was closed at once.
    let _refused = connection.write_all(REQUEST).await;
    let mut answer = Vec::new();
    while !answer.ends_with(b"127.0.0.1") {
        match connection.read_buf(&mut answer).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_connection_over_the_limit_is_closed_and_counted() {
    let config = ListenConfig {
        max_connections: 2,
        ..ListenConfig::default()
    };
    let server = Server::start(config).await;
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    assert!(send_request(&mut one).await.starts_with("HTTP/1.1 200"));
    assert!(send_request(&mut two).await.starts_with("HTTP/1.1 200"));
    assert_eq!((server.seen.open(), server.seen.refused()), (2, 0));
    let mut three = server.connect().await;
    assert_eq!(send_request(&mut three).await, "");
    assert_eq!((server.seen.accepted(), server.seen.refused()), (2, 1));
    assert!(send_request(&mut one).await.starts_with("HTTP/1.1 200"));
    drop(two);
    // Waits until the server notices a closed connection.
    while send_request(&mut server.connect().await).await.is_empty() {}
    assert_eq!(server.seen.accepted(), 3);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let config = ListenConfig {
        idle: Duration::from_millis(50),
        headers: Duration::from_hours(1),
        ..ListenConfig::default()
    };
    let server = Server::start(config).await;
    let mut silent = server.connect().await;
    assert_eq!(silent.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    assert_eq!(server.seen.idle(), 1);
    let mut active = server.connect().await;
    assert!(send_request(&mut active).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn unfinished_headers_time_out() {
    let config = ListenConfig {
        idle: Duration::from_hours(1),
        headers: Duration::from_millis(50),
        ..ListenConfig::default()
    };
    let server = Server::start(config).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HTTP/1.1\r\nhost: 127")
        .await
        .unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).await.unwrap();
    assert_eq!(server.seen.idle(), 0);
}

#[tokio::test]
async fn shutdown_closes_idle_connections() {
    let server = Server::start(ListenConfig::default()).await;
    let mut open = server.connect().await;
    assert!(send_request(&mut open).await.starts_with("HTTP/1.1 200"));
    server.stop.send(()).unwrap();
    server.task.await.unwrap();
    assert_eq!(open.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    assert_eq!(server.seen.open(), 0);
    assert!(TcpStream::connect(server.address).await.is_err());
}
