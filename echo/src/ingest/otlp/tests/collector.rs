//! A collector with everything but a database, and the ways to send it something.

#![expect(
    clippy::disallowed_methods,
    reason = "the test plays the part of `app`, which owns the tasks"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use echo_core::clock::ManualClock;
use echo_core::clock::SystemClock;
use echo_core::policy_table::{ClusterPolicy, HealthThreshold, PolicyTable};
use echo_store::EventStore;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::ingest::accept::{Ingest, IngestConfig};
use crate::ingest::fixture::RECEIVED;
use crate::ingest::fixture::store::RecordingStore;
use crate::ingest::otlp::{BytesCodec, LogsService, MetricsService, TracesService};
use crate::ingest::strays::Strays;
use crate::serve::grpc::serve;
use crate::serve::listener::{Connections, ListenConfig, Listener};
use crate::serve::terms::Terms;
use crate::serve::tls::Encryption;

/// A collector on a free port.
pub(in crate::ingest::otlp) struct Collector {
    pub(in crate::ingest::otlp) store: Arc<RecordingStore>,
    pub(in crate::ingest::otlp) ingest: Ingest,
    address: SocketAddr,
    pub(in crate::ingest::otlp) stop: watch::Sender<bool>,
    pub(in crate::ingest::otlp) server: JoinHandle<()>,
    /// Keeps the table open.
    _policies: watch::Sender<Arc<PolicyTable>>,
}

impl Collector {
    pub(in crate::ingest::otlp) async fn start(
        config: IngestConfig,
        store: RecordingStore,
    ) -> Self {
        let store = Arc::new(store);
        let (policies, table) = watch::channel(Arc::new(policies()));
        let clock = Arc::new(ManualClock::at(RECEIVED));
        let events: Arc<dyn EventStore> = Arc::<RecordingStore>::clone(&store);
        let ingest = Ingest::new(config, (events, clock), table, Strays::default());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Listener::new(listener, ListenConfig::default(), Connections::default());
        let (stop, mut stopped) = watch::channel(false);
        let metrics = MetricsService::new(ingest.clone());
        let logs = LogsService::new(ingest.clone());
        let traces = TracesService::new(ingest.clone());
        let server = tokio::spawn(async move {
            let stopped = async move {
                stopped.wait_for(|stop| *stop).await.unwrap();
            };
            let terms = Terms::open(Arc::new(SystemClock));
            let guard = (terms, Encryption::None);
            serve(listener, (metrics, logs, traces), guard, stopped).await;
        });
        Self {
            store,
            ingest,
            address,
            stop,
            server,
            _policies: policies,
        }
    }

    pub(in crate::ingest::otlp) async fn with_defaults() -> Self {
        Self::start(IngestConfig::default(), RecordingStore::default()).await
    }

    pub(in crate::ingest::otlp) async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }

    pub(in crate::ingest::otlp) async fn client(&self) -> MetricsServiceClient<Channel> {
        MetricsServiceClient::new(self.channel().await)
    }

    pub(in crate::ingest::otlp) async fn logs_client(&self) -> LogsServiceClient<Channel> {
        LogsServiceClient::new(self.channel().await)
    }

    pub(in crate::ingest::otlp) async fn traces_client(&self) -> TraceServiceClient<Channel> {
        TraceServiceClient::new(self.channel().await)
    }

    /// Calls a method with bytes for a message.
    pub(in crate::ingest::otlp) async fn send_raw(
        &self,
        path: &'static str,
        body: Bytes,
    ) -> Result<Response<Bytes>, Status> {
        let mut client = tonic::client::Grpc::new(self.channel().await);
        client.ready().await.unwrap();
        let path = PathAndQuery::from_static(path);
        client.unary(Request::new(body), path, BytesCodec).await
    }

    /// Sends bytes on a bare connection and returns what comes back until the other side hangs up.
    pub(in crate::ingest::otlp) async fn send_bare(&self, bytes: &[u8]) -> String {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let hung_up = connection.read_to_end(&mut answer);
        let hung_up = tokio::time::timeout(Duration::from_secs(30), hung_up).await;
        hung_up.expect("the connection hangs").unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn policies() -> PolicyTable {
    let policy = ClusterPolicy {
        version: 3,
        encoded: Bytes::from_static(b"\x08\x03"),
        quorum_met: true,
        health: Some(HealthThreshold::example(0.75)),
    };
    let mut table = PolicyTable::default();
    table.set_policy("prod".parse().unwrap(), policy);
    table
}
