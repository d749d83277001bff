//! A gRPC client that sends encoded requests as they are.

use std::io;

use anyhow::Context;
use bytes::{BufMut, Bytes};
use fleet_proto::metadata;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{AsciiMetadataValue, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::service_fn;

const EXPORT: PathAndQuery =
    PathAndQuery::from_static("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");

/// Receiver of requests, and how to connect to it.
#[derive(Clone)]
pub(crate) struct Target {
    address: String,
    tls: Option<TlsConnector>,
    bearer: Option<AsciiMetadataValue>,
}

impl Target {
    /// A receiver without TLS and without tokens.
    pub(crate) fn plain(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            tls: None,
            bearer: None,
        }
    }

    /// A receiver with TLS that requires a token.
    pub(crate) fn with_token(
        address: &str,
        tls: TlsConnector,
        token: &str,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            address: address.to_owned(),
            tls: Some(tls),
            bearer: Some(format!("Bearer {token}").parse()?),
        })
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> anyhow::Result<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))?.tcp_nodelay(true);
        let channel = match &self.tls {
            None => endpoint.connect().await,
            Some(tls) => {
                let (tls, address) = (tls.clone(), self.address.clone());
                let connect = service_fn(move |_uri: Uri| {
                    let (tls, address) = (tls.clone(), address.clone());
                    async move { encrypted(&address, tls).await.map(TokioIo::new) }
                });
                endpoint.connect_with_connector(connect).await
            }
        };
        channel.with_context(|| format!("no connection to {}", self.address))
    }
}

/// A connection after its handshake.
pub(crate) async fn encrypted(
    address: &str,
    tls: TlsConnector,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    tls.connect(name, stream).await
}

/// One agent instance, whose batches are numbered.
#[derive(Debug)]
pub(crate) struct Client {
    grpc: Grpc<Channel>,
    instance: AsciiMetadataValue,
    bearer: Option<AsciiMetadataValue>,
}

impl Client {
    /// Creates an instance of that name on a connection, which may be shared.
    pub(crate) fn new(
        target: &Target,
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
            bearer: target.bearer.clone(),
        })
    }

    /// Sends a batch; returns the number of rejected points.
    pub(crate) async fn send(&mut self, number: u64, body: Bytes) -> Result<u64, Status> {
        let mut request = Request::new(body);
        let keys = request.metadata_mut();
        keys.insert(metadata::AGENT_INSTANCE, self.instance.clone());
        keys.insert(metadata::BATCH_NUMBER, MetadataValue::from(number));
        if let Some(bearer) = &self.bearer {
            keys.insert("authorization", bearer.clone());
        }
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
