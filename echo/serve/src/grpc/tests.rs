//! The listener as it is met from outside: by agents, and by whatever else finds the port.

#![expect(
    clippy::disallowed_methods,
    reason = "the test plays the part of `app`, which owns the tasks"
)]

use std::net::SocketAddr;
use std::sync::Arc;

use echo_core::clock::{ManualClock, SystemClock};
use echo_core::policy_table::PolicyTable;
use echo_ingest::accept::{Ingest, IngestConfig};
use echo_ingest::fixture::store::RecordingStore;
use echo_ingest::fixture::{RECEIVED, rank_2, request, wait, waits};
use echo_ingest::misrouted::Misrouted;
use echo_ingest::otlp::grpc::{LogsService, MetricsService, TracesService};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use super::{carries_protobuf, serve};
use crate::listener::{Connections, ListenConfig, Listener};
use crate::middleware::Terms;
use crate::tls::Encryption;

/// A collector on a free port.
struct Collector {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Collector {
    async fn start(store: Arc<RecordingStore>) -> Self {
        let (_policies, table) = watch::channel(Arc::new(PolicyTable::default()));
        let clock = Arc::new(ManualClock::at(RECEIVED));
        let config = IngestConfig::default();
        let ingest = Ingest::new(config, (store, clock), table, Misrouted::default());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Listener::new(listener, ListenConfig::default(), Connections::default());
        let (stop, mut stopped) = watch::channel(false);
        let services = (
            MetricsService::new(ingest.clone()),
            LogsService::new(ingest.clone()),
            TracesService::new(ingest),
        );
        let server = tokio::spawn(async move {
            let stopped = async move {
                stopped.wait_for(|stop| *stop).await.unwrap();
            };
            let terms = Terms::open(Arc::new(SystemClock));
            serve(listener, services, (terms, Encryption::None), stopped).await;
        });
        Self {
            address,
            stop,
            server,
        }
    }

    async fn client(&self) -> MetricsServiceClient<Channel> {
        let endpoint = format!("http://{}", self.address);
        MetricsServiceClient::connect(endpoint).await.unwrap()
    }

    /// Sends bytes on a bare connection and returns what comes back until the other side hangs up.
    async fn send_bare(&self, bytes: &[u8]) -> String {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[test]
fn only_grpc_with_protobuf_is_served() {
    for accepted in [
        "application/grpc",
        "application/grpc+proto",
        "Application/gRPC ; charset=utf-8",
        "application/grpc+proto;v=1",
    ] {
        assert!(carries_protobuf(accepted.as_bytes()), "{accepted}");
    }
    for refused in [
        "",
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpc+json",
        "application/grpcx",
        "application/json; application/grpc",
        "application/x-protobuf",
    ] {
        assert!(!carries_protobuf(refused.as_bytes()), "{refused}");
    }
}

#[tokio::test]
async fn plain_http_is_told_that_it_has_the_wrong_port() {
    let collector = Collector::start(Arc::default()).await;
    let answer = collector
        .send_bare(
            b"POST /v1/metrics HTTP/1.1\r\nhost: echo\r\ncontent-type: application/json\r\n\
              content-length: 2\r\nconnection: close\r\n\r\n{}",
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 415 "), "{answer}");
    assert!(answer.contains("OTLP over gRPC"), "{answer}");
}

#[tokio::test]
async fn noise_on_the_port_ends_its_own_connection_only() {
    let collector = Collector::start(Arc::default()).await;
    let answer = collector.send_bare(b"\x16\x03\x01 hello\r\n\r\n").await;
    assert!(answer.is_empty() || answer.contains("400"), "{answer}");
    collector
        .client()
        .await
        .export(request(rank_2(), vec![waits(vec![wait()])]))
        .await
        .unwrap();
}

#[tokio::test]
async fn what_is_open_at_shutdown_is_finished() {
    let (store, gate) = RecordingStore::gated();
    let store = Arc::new(store);
    let collector = Collector::start(Arc::clone(&store)).await;
    let mut client = collector.client().await;
    let open = tokio::spawn(async move {
        client
            .export(request(rank_2(), vec![waits(vec![wait()])]))
            .await
    });
    gate.entered().await;
    collector.stop.send(true).unwrap();
    gate.open();
    open.await.unwrap().unwrap();
    collector.server.await.unwrap();
    assert_eq!(store.events(), 1);
}
