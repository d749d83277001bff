//! Collector without a database, and its clients.

#![expect(
    clippy::disallowed_methods,
    reason = "the test plays the part of `app`, which owns the tasks"
)]

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use echo_core::clock::ManualClock;
use echo_core::policy_table::{AgentReport, ClusterPolicy, HealthThreshold, PolicyTable};
use echo_store::EventStore;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::accept::{Ingest, IngestConfig};
use crate::fixture::RECEIVED;
use crate::fixture::store::RecordingStore;
use crate::misrouted::Misrouted;
use crate::otlp::grpc::{LogsService, MetricsService, TracesService};

/// Collector on a free port.
pub(in crate::otlp) struct Collector {
    pub(in crate::otlp) store: Arc<RecordingStore>,
    pub(in crate::otlp) ingest: Ingest,
    address: SocketAddr,
    /// Keeps the channel of policies open.
    _policies: watch::Sender<Arc<PolicyTable>>,
}

impl Collector {
    pub(in crate::otlp) async fn start(config: IngestConfig, store: RecordingStore) -> Self {
        let store = Arc::new(store);
        let (policies, table) = watch::channel(Arc::new(policies()));
        let clock = Arc::new(ManualClock::at(RECEIVED));
        let events: Arc<dyn EventStore> = Arc::<RecordingStore>::clone(&store);
        let ingest = Ingest::new(config, (events, clock), table, Misrouted::default());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Routes::new(MetricsService::new(ingest.clone()))
            .add_service(LogsService::new(ingest.clone()))
            .add_service(TracesService::new(ingest.clone()));
        let server = Server::builder().add_routes(routes);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self {
            store,
            ingest,
            address,
            _policies: policies,
        }
    }

    pub(in crate::otlp) async fn with_defaults() -> Self {
        Self::start(IngestConfig::default(), RecordingStore::default()).await
    }

    pub(in crate::otlp) async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }

    pub(in crate::otlp) async fn client(&self) -> MetricsServiceClient<Channel> {
        MetricsServiceClient::new(self.channel().await)
    }

    pub(in crate::otlp) async fn logs_client(&self) -> LogsServiceClient<Channel> {
        LogsServiceClient::new(self.channel().await)
    }

    pub(in crate::otlp) async fn traces_client(&self) -> TraceServiceClient<Channel> {
        TraceServiceClient::new(self.channel().await)
    }

    /// Calls a method with these bytes as the message.
    pub(in crate::otlp) async fn send_raw(
        &self,
        path: &'static str,
        body: Bytes,
    ) -> Result<Response<Bytes>, Status> {
        let mut client = tonic::client::Grpc::new(self.channel().await);
        client.ready().await.unwrap();
        let path = PathAndQuery::from_static(path);
        client.unary(Request::new(body), path, BytesCodec).await
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
    let node = ("prod".parse().unwrap(), "node-0".parse().unwrap());
    table.set_culprits(AgentReport {
        clusters: vec!["prod".parse().unwrap()],
        nodes: [(node, Bytes::from_static(b"\x0a\x00"))].into(),
    });
    table
}

/// Codec that does not encode messages.
#[derive(Debug, Clone, Copy)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(src.copy_to_bytes(src.remaining())))
    }
}
