//! The OTLP services: metrics, log records and spans, on gRPC and (`http`) on plain HTTP.
//!
//! Bodies are taken as bytes and decoded by `decode`, not by the transport: so a body that is no OTLP request, or
//! too large, gets a status that tells the sender not to repeat it. (The transport would answer `INTERNAL` and
//! `OUT_OF_RANGE`; OTLP clients send the latter again.)
//!
//! A compressed body is the transport's until it has ended, and until then nobody knows what it unpacks to. So memory
//! for the largest message is set aside before it is looked at, from a budget of its own, and a body that does not end
//! is cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, BufMut, Bytes};
use echo_core::error::{Code, Coded, chain};
use echo_core::model::event::BatchKey;
use fleet_proto::metadata;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, CompressionEncoding, Context, Poll, Service, http as http_types};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};

use self::arrival::Arrival;
use self::unpack::Compression;
use super::accept::{Ingest, IngestError, Sent};
use super::admit::Unpacking;
use super::batch_key::{BatchKeyError, numbered};
use super::decode::Payload;
use super::respond;
use super::sender::{Peer, Sender};
use super::writer::Writer;

mod arrival;
pub mod http;
#[cfg(test)]
pub(super) mod tests;
mod unpack;

/// Paths of the methods.
const EXPORT_METRICS: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const EXPORT_LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
const EXPORT_TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Header that says how messages are compressed.
const ENCODING: &str = "grpc-encoding";

/// Serves `MetricsService/Export`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MetricsService(Exporter);

impl MetricsService {
    /// The service in front of an ingest path.
    pub const fn new(ingest: Ingest) -> Self {
        Self(Exporter {
            ingest,
            payload: Payload::Metrics,
            path: EXPORT_METRICS,
        })
    }
}

/// Serves `LogsService/Export`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LogsService(Exporter);

impl LogsService {
    /// The service in front of an ingest path.
    pub const fn new(ingest: Ingest) -> Self {
        Self(Exporter {
            ingest,
            payload: Payload::Logs,
            path: EXPORT_LOGS,
        })
    }
}

/// Serves `TraceService/Export`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TracesService(Exporter);

impl TracesService {
    /// The service in front of an ingest path.
    pub const fn new(ingest: Ingest) -> Self {
        Self(Exporter {
            ingest,
            payload: Payload::Traces,
            path: EXPORT_TRACES,
        })
    }
}

/// A service with the one method `Export`.
#[derive(Debug, Clone)]
struct Exporter {
    ingest: Ingest,
    payload: Payload,
    path: &'static str,
}

impl Exporter {
    async fn serve(self, request: http_types::Request<Body>) -> http_types::Response<Body> {
        if request.uri().path() != self.path {
            return respond::no_such_method().into_http();
        }
        self.export(request).await
    }

    #[expect(
        clippy::significant_drop_tightening,
        reason = "the memory set aside is moved into the call, which gives it back itself"
    )]
    async fn export(self, request: http_types::Request<Body>) -> http_types::Response<Body> {
        let number = self.ingest.stats().saw_request();
        let (sender, key) = match sender(request.headers(), request.extensions()) {
            Ok(known) => known,
            Err(error) => return failed(&self.ingest, &error.into(), number).into_http(),
        };
        let writer = writer(request.extensions());
        let unpacking = match compression(request.headers()) {
            Some(compression) => {
                let memory = compression.memory(self.ingest.max_message_bytes());
                match self.ingest.unpacking(&sender, memory).await {
                    Ok(memory) => Some(memory),
                    Err(error) => return failed(&self.ingest, &error.into(), number).into_http(),
                }
            }
            None => None,
        };
        let room = self.ingest.arriving(&sender);
        let answered = Arc::new(AtomicBool::new(false));
        let request =
            request.map(|body| Arrival::of(body, (&self.ingest, room), (number, &answered)));
        let method = Export {
            ingest: self.ingest.clone(),
            payload: self.payload,
            number,
            from: Some((sender, key, writer)),
            unpacking,
            answered: Arc::clone(&answered),
        };
        let response = Grpc::new(BytesCodec)
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd)
            .max_decoding_message_size(self.ingest.max_message_bytes())
            .unary(method, request)
            .await;
        if answered.load(Ordering::Relaxed) {
            return response;
        }
        match Status::from_header_map(response.headers()) {
            Some(status) => self.refusal(&status, number).unwrap_or(response),
            None => response,
        }
    }

    /// The answer to a message that the transport could not read.
    fn refusal(&self, status: &Status, number: u64) -> Option<http_types::Response<Body>> {
        let error = match status.code() {
            tonic::Code::OutOfRange | tonic::Code::ResourceExhausted => IngestError::TooLarge {
                limit: self.ingest.max_message_bytes(),
            },
            tonic::Code::Internal => IngestError::Unreadable(status.message().to_owned()),
            _ => return None,
        };
        Some(failed(&self.ingest, &error, number).into_http())
    }
}

/// Who sends, and the key of the batch if it is numbered.
fn sender(
    headers: &http_types::HeaderMap,
    extensions: &http_types::Extensions,
) -> Result<(Sender, Option<BatchKey>), BatchKeyError> {
    let header = |name| headers.get(name).map(http_types::HeaderValue::as_bytes);
    let key = numbered(
        header(metadata::AGENT_INSTANCE),
        header(metadata::BATCH_NUMBER),
    )?;
    let sender = Sender::of(key.as_ref(), extensions.get::<Peer>());
    Ok((sender, key))
}

/// For whom the sender may send, as the listener put it among the extensions.
fn writer(extensions: &http_types::Extensions) -> Writer {
    Writer::new(extensions.get().cloned(), extensions.get().cloned())
}

/// How the messages may be compressed; the transport refuses what is neither.
fn compression(headers: &http_types::HeaderMap) -> Option<Compression> {
    let declared = headers.get(ENCODING)?;
    let all = [Compression::Gzip, Compression::Zstd];
    all.into_iter().find(|one| declared == one.name())
}

/// Counts the error, logs it if it is the collector's, and says it to the sender.
fn failed(ingest: &Ingest, error: &IngestError, number: u64) -> Status {
    note(ingest, error, number);
    respond::status(error, number)
}

/// Counts the error, and logs it if it is the collector's.
fn note(ingest: &Ingest, error: &IngestError, number: u64) {
    let code = error.code();
    ingest.stats().saw_failure(code);
    if code == Code::Internal || error.is_ours() {
        tracing::error!(
            request.number = number,
            error = chain(error),
            "could not store a request"
        );
    }
}

/// Makes a service of gRPC out of a wrapped [`Exporter`].
macro_rules! service {
    ($type:ty, $name:path) => {
        impl NamedService for $type {
            const NAME: &'static str = $name;
        }

        impl Service<http_types::Request<Body>> for $type {
            type Response = http_types::Response<Body>;
            type Error = std::convert::Infallible;
            type Future = BoxFuture<Self::Response, Self::Error>;

            fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, req: http_types::Request<Body>) -> Self::Future {
                let exporter = self.0.clone();
                Box::pin(async move { Ok(exporter.serve(req).await) })
            }
        }
    };
}

service!(MetricsService, metrics_service_server::SERVICE_NAME);
service!(LogsService, logs_service_server::SERVICE_NAME);
service!(TracesService, trace_service_server::SERVICE_NAME);

/// One call of the method.
struct Export {
    ingest: Ingest,
    payload: Payload,
    number: u64,
    /// Who sends, the key of a numbered batch, and for whom it may be; taken by the one call.
    from: Option<(Sender, Option<BatchKey>, Writer)>,
    /// What was set aside for a compressed message.
    unpacking: Option<Unpacking>,
    /// Set once the answer is Echo's own: errors before that are the transport's.
    answered: Arc<AtomicBool>,
}

impl UnaryService<Bytes> for Export {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.answered.store(true, Ordering::Relaxed);
        let ingest = self.ingest.clone();
        let (payload, number) = (self.payload, self.number);
        let unpacking = self.unpacking.take();
        let (sender, key, writer) = self.from.take().unwrap_or_default();
        let body = request.into_inner();
        Box::pin(async move {
            let sent = Sent {
                sender: &sender,
                key,
                writer: &writer,
            };
            let accepted = ingest.accept((payload, body), sent, unpacking);
            match accepted.await {
                Ok(accepted) => Ok(respond::grpc(payload, &accepted)),
                Err(error) => Err(failed(&ingest, &error, number)),
            }
        })
    }
}

/// Passes messages on as they are.
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
