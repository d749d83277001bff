//! The OTLP services on gRPC.
//!
//! The body of a request is one message behind a prefix. It is read here and not by the transport's codec: so a body that is
//! no OTLP request, or too large, gets a status that tells the sender not to repeat it (the codec would answer `INTERNAL` and
//! `OUT_OF_RANGE`; OTLP clients send the latter again), and memory is taken as it arrives and as it is unpacked.

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

use super::body::{Form, Language, Taken, arrived};
use super::decompress::Compression;
use super::{note, sender, writer};
use crate::accept::{Accepted, Ingest, IngestError, Sent};
use crate::decode::Payload;
use crate::respond;

/// Paths of the methods.
pub(super) const EXPORT_METRICS: &str =
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
pub(super) const EXPORT_LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
pub(super) const EXPORT_TRACES: &str =
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Header that says how messages are compressed.
const ENCODING: &str = "grpc-encoding";

/// What stands before a message: whether it is compressed, and its length in four bytes.
const PREFIX: usize = 5;

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
    async fn serve(self, request: Request<Body>) -> Response<Body> {
        if request.uri().path() != self.path {
            return respond::no_such_method().into_http();
        }
        let number = self.ingest.stats().saw_request();
        match self.export(request).await {
            Ok(accepted) => success(self.payload, &accepted),
            Err(error) => {
                note(&self.ingest, &error, number);
                respond::status(&error, number).into_http()
            }
        }
    }

    async fn export(&self, request: Request<Body>) -> Result<Accepted, IngestError> {
        let (parts, body) = request.into_parts();
        let compression = compression(&parts.headers)?;
        let (sender, key) = sender(&parts.headers, &parts.extensions)?;
        let held = self.ingest.budget().hold(&sender);
        let limit = self.ingest.config().max_message_bytes;
        let body = (AnyBody::new(body), limit + PREFIX);
        let Taken { body, held } = arrived(&self.ingest, held, body).await?;
        let (is_compressed, body) = message(&body)?;
        let compression = compression.filter(|_| is_compressed);
        if is_compressed && compression.is_none() {
            let reason = format!("the message is compressed, but there is no header {ENCODING}");
            return Err(IngestError::Unreadable(reason));
        }
        let form = Form {
            payload: self.payload,
            language: Language::Protobuf,
            compression,
        };
        let Taken { body, held } = form.read(Taken { body, held }, limit).await?;
        let sent = Sent {
            payload: self.payload,
            body,
            held,
            key,
            writer: writer(&parts.extensions),
        };
        self.ingest.accept(sent).await
    }
}

/// How messages that are compressed are.
fn compression(headers: &HeaderMap) -> Result<Option<Compression>, IngestError> {
    let Some(declared) = headers.get(ENCODING).filter(|name| *name != "identity") else {
        return Ok(None);
    };
    let known = Compression::ALL.into_iter();
    let mut found = known.filter(|one| declared == one.name());
    found.next().map(Some).ok_or_else(|| {
        IngestError::Unsupported(format!(
            "messages compressed with {declared:?} are not read: send them with gzip, zstd or as they are"
        ))
    })
}

/// The one message of a request, and whether it is compressed.
fn message(body: &Bytes) -> Result<(bool, Bytes), IngestError> {
    let unreadable = |reason: &str| IngestError::Unreadable(reason.to_owned());
    let Some((&[flag, a, b, c, d], message)) = body.split_first_chunk::<PREFIX>() else {
        return Err(unreadable("the request holds no message"));
    };
    let length = u32::from_be_bytes([a, b, c, d]);
    if u32::try_from(message.len()) != Ok(length) {
        return Err(unreadable(
            "the request is not one message of the length that it states",
        ));
    }
    match flag {
        0 | 1 => Ok((flag == 1, body.slice_ref(message))),
        _ => Err(unreadable("the message is neither compressed nor not")),
    }
}

/// The answer to a request that was taken.
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

/// Makes a service of gRPC out of a wrapped [`Exporter`].
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
