//! OTLP/gRPC exporter.

mod encode;
mod link;
mod logs;
mod measurements;
mod raw;
pub(crate) mod status;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fleet_agent_core::batch::{Batch, VerdictBatch};
use fleet_agent_core::policy::decode;
use fleet_agent_core::printable::printable;
use fleet_proto::metadata;
use fleet_proto::policy::{HostCulprits, PolicySet};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
};
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{AsciiMetadataValue, MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::encoded::EncodedBatch;
use crate::otlp::encode::encode;
pub use crate::otlp::link::{EndpointError, Link, Security};
pub use crate::otlp::measurements::MeasurementExporter;
use crate::otlp::raw::RawCodec;
use crate::otlp::status::{MAX_REASON, classify, classify_for_spool};
use crate::{Ack, Export, ExportError, Forward};

/// gRPC path for an `ExportMetricsServiceRequest`.
const METRICS: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// Connection of one agent instance, opened at the first batch and reopened when it is lost.
#[derive(Debug, Clone)]
pub struct Otlp {
    metrics: Grpc<Channel>,
    logs: LogsServiceClient<Channel>,
    link: Link,
    instance: u64,
}

impl Otlp {
    /// Creates an exporter without a token, over TLS if the endpoint is https. `instance` is new at
    /// every start of an agent.
    pub fn new(endpoint: &str, instance: u64) -> Result<Self, EndpointError> {
        Self::with_counter(endpoint, instance, &Arc::default())
    }

    /// Like `new`; adds every connection that it opens to `connections`.
    pub fn with_counter(
        endpoint: &str,
        instance: u64,
        connections: &Arc<AtomicU64>,
    ) -> Result<Self, EndpointError> {
        let link = Link::new(endpoint, &Security::default())?;
        Ok(Self::with_link(&link, instance, connections))
    }

    /// Creates an exporter over `link`; adds every connection that it opens to `connections`.
    pub fn with_link(link: &Link, instance: u64, connections: &Arc<AtomicU64>) -> Self {
        let channel = link.connect(connections);
        Self {
            metrics: Grpc::new(channel.clone())
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip),
            logs: LogsServiceClient::new(channel)
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip),
            link: link.clone(),
            instance,
        }
    }

    /// Wraps a message with the key by which the receiver deduplicates batches.
    fn request<T>(&self, instance: u64, number: u64, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let headers = request.metadata_mut();
        let instance = format!("{instance:016x}");
        let instance = AsciiMetadataValue::try_from(instance.as_str())
            .unwrap_or_else(|_| AsciiMetadataValue::from_static("agent"));
        headers.insert(metadata::AGENT_INSTANCE, instance);
        headers.insert(metadata::BATCH_NUMBER, MetadataValue::from(number));
        self.link.authorize(headers);
        request
    }

    async fn send_metrics(&self, batch: &EncodedBatch) -> Result<Ack, Status> {
        let mut metrics = self.metrics.clone();
        // As in tonic's generated clients; the error carries the cause of a failed connection.
        metrics
            .ready()
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        let request = self.request(batch.instance, batch.number, batch.request.clone());
        let path = PathAndQuery::from_static(METRICS);
        metrics
            .unary(request, path, RawCodec::default())
            .await
            .map(ack)
    }
}

impl Export for Otlp {
    async fn export(&self, batch: &Batch) -> Result<Ack, ExportError> {
        let sent = self.send_metrics(&self.encode(batch)).await;
        sent.map_err(|status| classify(&status))
    }

    async fn export_verdicts(&self, batch: &VerdictBatch) -> Result<Ack, ExportError> {
        let request = self.request(self.instance, batch.number, logs::encode(batch));
        let sent = self.logs.clone().export(request).await;
        sent.map(logs::ack).map_err(|status| classify(&status))
    }
}

impl Forward for Otlp {
    fn encode(&self, batch: &Batch) -> EncodedBatch {
        EncodedBatch {
            instance: self.instance,
            number: batch.number,
            points: batch.n_points() as u64,
            request: encode(batch).encode_to_vec().into(),
        }
    }

    async fn forward(&self, batch: &EncodedBatch) -> Result<Ack, ExportError> {
        let sent = self.send_metrics(batch).await;
        sent.map_err(|status| classify_for_spool(&status))
    }
}

fn ack(response: Response<ExportMetricsServiceResponse>) -> Ack {
    let policy = policy(response.metadata());
    let culprits = culprits(response.metadata());
    let ExportMetricsPartialSuccess {
        rejected_data_points,
        error_message,
    } = response.into_inner().partial_success.unwrap_or_default();
    Ack {
        rejected: u64::try_from(rejected_data_points).unwrap_or(0),
        reason: printable(&error_message, MAX_REASON),
        policy,
        culprits,
    }
}

/// Returns the culprits of this host. An unreadable list is no statement.
fn culprits(headers: &MetadataMap) -> Option<HostCulprits> {
    let bytes = headers.get_bin(metadata::CULPRITS)?.to_bytes().ok()?;
    HostCulprits::decode(bytes)
        .inspect_err(|error| tracing::warn!(%error, "culprits ignored: cannot be decoded"))
        .ok()
}

// A policy is optional: an unreadable one must not invalidate the acknowledgement.
fn policy(headers: &MetadataMap) -> Option<PolicySet> {
    let bytes = headers.get_bin(metadata::POLICY)?.to_bytes().ok()?;
    if bytes.len() > metadata::POLICY_MAX_BYTES {
        tracing::warn!(policy.bytes = bytes.len(), "policy set ignored: too large");
        return None;
    }
    decode(&bytes)
        .inspect_err(|error| tracing::warn!(%error, "policy set ignored: cannot be decoded"))
        .ok()
}
