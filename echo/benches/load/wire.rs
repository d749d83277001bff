//! A gRPC client that sends requests as the bytes they are.

use anyhow::Context;
use bytes::{BufMut, Bytes};
use fleet_proto::metadata;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{AsciiMetadataValue, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

const EXPORT: PathAndQuery =
    PathAndQuery::from_static("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");

/// Opens a connection of its own.
pub(crate) async fn connect(address: &str) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
    let channel = endpoint.connect().await;
    channel.with_context(|| format!("no connection to {address}"))
}

/// One agent instance, whose batches are numbered.
#[derive(Debug)]
pub(crate) struct Client {
    grpc: Grpc<Channel>,
    instance: AsciiMetadataValue,
}

impl Client {
    /// An instance of that name on a connection, which others may use as well.
    pub(crate) fn new(
        channel: Channel,
        instance: &str,
        compression: Option<CompressionEncoding>,
    ) -> anyhow::Result<Self> {
        let grpc = Grpc::new(channel);
        Ok(Self {
            grpc: match compression {
                Some(encoding) => grpc.send_compressed(encoding),
                None => grpc,
            },
            instance: instance.parse()?,
        })
    }

    /// Sends a batch, and returns how many of its points were refused.
    pub(crate) async fn send(&mut self, number: u64, body: Bytes) -> Result<u64, Status> {
        let mut request = Request::new(body);
        let keys = request.metadata_mut();
        keys.insert(metadata::AGENT_INSTANCE, self.instance.clone());
        keys.insert(metadata::BATCH_NUMBER, MetadataValue::from(number));
        let ready = self.grpc.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let response = self.grpc.unary(request, EXPORT, Raw).await?.into_inner();
        let rejected = response.partial_success.unwrap_or_default();
        Ok(u64::try_from(rejected.rejected_data_points).unwrap_or(0))
    }
}

/// Requests are bytes, responses are messages.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = ExportMetricsServiceResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ExportMetricsServiceResponse;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let message = ExportMetricsServiceResponse::decode(src);
        message
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
