//! OTLP services over gRPC. The body of a request is one message with a prefix. It is read here and
//! not by the codec of tonic: an invalid or too large body then gets a status that OTLP clients do
//! not retry (the codec would return `INTERNAL` or `OUT_OF_RANGE`, which clients retry), and memory
//! is reserved as the body arrives and is decompressed.

use std::convert::Infallible;
use std::future::ready;

use axum::body::Body as AnyBody;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Context, Poll, Service};
use tonic::server::NamedService;

use super::body::{Encoding, Format, ReceivedBody, receive};
use super::decompress::Compression;
use super::{account_and_key, record_failure, sender_auth};
use crate::accept::{Accepted, Ingest, IngestError, IngestRequest};
use crate::decode::Payload;
use crate::respond;

/// Paths of the methods.
pub(super) const EXPORT_METRICS: &str =
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
pub(super) const EXPORT_LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
pub(super) const EXPORT_TRACES: &str =
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Header with the compression of messages.
const ENCODING: &str = "grpc-encoding";

/// Length of the message prefix: compression flag and four bytes of length.
const PREFIX: usize = 5;

/// Serves `MetricsService/Export`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MetricsService(Exporter);

impl MetricsService {
    /// Creates the service for an ingest path.
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
    /// Creates the service for an ingest path.
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
    /// Creates the service for an ingest path.
    pub const fn new(ingest: Ingest) -> Self {
        Self(Exporter {
            ingest,
            payload: Payload::Traces,
            path: EXPORT_TRACES,
        })
    }
}

/// Service with the method `Export`.
#[derive(Debug, Clone)]
struct Exporter {
    ingest: Ingest,
    payload: Payload,
    path: &'static str,
}

impl Exporter {
    async fn serve(self, request: Request<Body>) -> Response<Body> {
        if request.uri().path() != self.path {
            return respond::no_such_method().into_http();
        }
        let number = self.ingest.stats().count_request();
        match self.export(request).await {
            Ok(accepted) => success(self.payload, &accepted),
            Err(error) => {
                record_failure(&self.ingest, &error, number);
                respond::status(&error, number).into_http()
            }
        }
    }

    async fn export(&self, request: Request<Body>) -> Result<Accepted, IngestError> {
        let (parts, body) = request.into_parts();
        let compression = compression(&parts.headers)?;
        let (account, key) = account_and_key(&parts.headers, &parts.extensions)?;
        let memory = self.ingest.budget().reserve(&account);
        let limit = self.ingest.config().max_message_bytes;
        let body = AnyBody::new(body);
        let ReceivedBody { body, memory } =
            receive(&self.ingest, memory, body, limit + PREFIX).await?;
        let (is_compressed, body) = message(&body)?;
        let compression = compression.filter(|_| is_compressed);
        if is_compressed && compression.is_none() {
            let reason = format!("the message is compressed, but the header {ENCODING} is missing");
            return Err(IngestError::Unreadable(reason));
        }
        let encoding = Encoding {
            payload: self.payload,
            format: Format::Protobuf,
            compression,
        };
        let ReceivedBody { body, memory } = encoding
            .decode(ReceivedBody { body, memory }, limit)
            .await?;
        let request = IngestRequest {
            payload: self.payload,
            body,
            memory,
            key,
            auth: sender_auth(&parts.extensions),
        };
        self.ingest.accept(request).await
    }
}

/// Returns the declared compression.
fn compression(headers: &HeaderMap) -> Result<Option<Compression>, IngestError> {
    let Some(declared) = headers.get(ENCODING).filter(|name| *name != "identity") else {
        return Ok(None);
    };
    let known = Compression::ALL.into_iter();
    let mut found = known.filter(|one| declared == one.name());
    found.next().map(Some).ok_or_else(|| {
        IngestError::Unsupported(format!(
            "unsupported message compression {declared:?}: use gzip, zstd or no compression"
        ))
    })
}

/// Splits the body into compression flag and message.
fn message(body: &Bytes) -> Result<(bool, Bytes), IngestError> {
    let unreadable = |reason: &str| IngestError::Unreadable(reason.to_owned());
    let Some((&[flag, a, b, c, d], message)) = body.split_first_chunk::<PREFIX>() else {
        return Err(unreadable("the request contains no message"));
    };
    let length = u32::from_be_bytes([a, b, c, d]);
    if u32::try_from(message.len()) != Ok(length) {
        return Err(unreadable(
            "the request is not exactly one message of the stated length",
        ));
    }
    match flag {
        0 | 1 => Ok((flag == 1, body.slice_ref(message))),
        _ => Err(unreadable("invalid compression flag")),
    }
}

/// Returns the response to an accepted request.
fn success(payload: Payload, accepted: &Accepted) -> Response<Body> {
    let (metadata, message, _) = respond::grpc(payload, accepted).into_parts();
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert(tonic::Status::GRPC_STATUS, HeaderValue::from_static("0"));
    let body = Full::new(frame.freeze()).with_trailers(ready(Some(Ok::<_, Infallible>(trailers))));
    let mut response = Response::new(Body::new(body));
    *response.headers_mut() = metadata.into_headers();
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, grpc);
    response
}

/// Implements a gRPC service for a wrapped [`Exporter`].
macro_rules! service {
    ($type:ty, $name:path) => {
        impl NamedService for $type {
            const NAME: &'static str = $name;
        }

        impl Service<Request<Body>> for $type {
            type Response = Response<Body>;
            type Error = Infallible;
            type Future = BoxFuture<Self::Response, Self::Error>;

            fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, req: Request<Body>) -> Self::Future {
                let exporter = self.0.clone();
                Box::pin(async move { Ok(exporter.serve(req).await) })
            }
        }
    };
}

service!(MetricsService, metrics_service_server::SERVICE_NAME);
service!(LogsService, logs_service_server::SERVICE_NAME);
service!(TracesService, trace_service_server::SERVICE_NAME);
