//! OTLP over plain HTTP, with bodies in protobuf.
//!
//! | path | body |
//! |---|---|
//! | `POST /v1/metrics` | `ExportMetricsServiceRequest` |
//! | `POST /v1/logs` | `ExportLogsServiceRequest` |
//!
//! The way from the bytes to the acknowledgement is that of gRPC: the same limits, the same numbering of batches (the
//! metadata are headers), the same answers. Errors carry a `google.rpc.Status`, as the protocol asks.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::{Bytes, BytesMut};
use fleet_proto::metadata;
use prost::Message;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use super::note;
use super::unpack::Compression;
use crate::error::{Code, Coded};
use crate::ingest::accept::{Accepted, Ingest, IngestError};
use crate::ingest::batch_key::numbered;
use crate::ingest::decode::Payload;
use crate::ingest::respond;

#[cfg(test)]
mod tests;

/// The type of protobuf bodies, of requests and of answers.
const PROTOBUF: &str = "application/x-protobuf";

/// The routes in front of an ingest path.
pub fn router(ingest: Ingest) -> Router {
    Router::new()
        .route("/v1/metrics", post(metrics))
        .route("/v1/logs", post(logs))
        .with_state(ingest)
}

async fn metrics(State(ingest): State<Ingest>, request: Request) -> Response {
    export(&ingest, Payload::Metrics, request).await
}

async fn logs(State(ingest): State<Ingest>, request: Request) -> Response {
    export(&ingest, Payload::Logs, request).await
}

async fn export(ingest: &Ingest, payload: Payload, request: Request) -> Response {
    let number = ingest.stats().saw_request();
    match handle(ingest, payload, request).await {
        Ok(accepted) => success(payload, &accepted),
        Err(error) => {
            note(ingest, &error, number);
            failure(&error, number)
        }
    }
}

async fn handle(
    ingest: &Ingest,
    payload: Payload,
    request: Request,
) -> Result<Accepted, IngestError> {
    let (parts, body) = request.into_parts();
    let compression = compression(&parts.headers)?;
    let header = |name| parts.headers.get(name).map(HeaderValue::as_bytes);
    let key = numbered(
        header(metadata::AGENT_INSTANCE),
        header(metadata::BATCH_NUMBER),
    )?;
    let Some(compression) = compression else {
        let body = arrived(ingest, body).await?;
        return ingest.accept((payload, body), key, None).await;
    };
    // Before the body is looked at: what it unpacks to is known only when it is in memory.
    let limit = ingest.max_message_bytes();
    let unpacking = ingest.unpacking(compression.memory(limit)).await?;
    let packed = arrived(ingest, body).await?;
    let unpacked = spawn_blocking(move || compression.unpack(&packed, limit));
    let body = unpacked.await.map_err(|_panicked| IngestError::Aborted)??;
    ingest.accept((payload, body), key, Some(unpacking)).await
}

/// How the body is compressed, if it is one that this listener reads.
fn compression(headers: &HeaderMap) -> Result<Option<Compression>, IngestError> {
    let text = |name| {
        let value = headers.get(name).map(HeaderValue::as_bytes);
        String::from_utf8_lossy(value.unwrap_or_default()).to_ascii_lowercase()
    };
    let declared = text(CONTENT_TYPE);
    let kind = declared.split(';').next().unwrap_or_default().trim();
    if kind != PROTOBUF {
        return Err(IngestError::Unsupported(format!(
            "bodies of type {kind:?} are not read: send protobuf with Content-Type: {PROTOBUF} \
             (OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf)"
        )));
    }
    match text(CONTENT_ENCODING).trim() {
        "" | "identity" => Ok(None),
        "gzip" => Ok(Some(Compression::Gzip)),
        "zstd" => Ok(Some(Compression::Zstd)),
        other => Err(IngestError::Unsupported(format!(
            "bodies compressed with {other:?} are not read: send them with gzip, zstd or as they are"
        ))),
    }
}

/// The body once it has arrived as a whole, cut off when there is no room for more of it or when it takes too long.
async fn arrived(ingest: &Ingest, body: Body) -> Result<Bytes, IngestError> {
    let limit = ingest.max_message_bytes();
    let mut room = ingest.arriving();
    let mut pieces = body.into_data_stream();
    let collect = async {
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| IngestError::Unreadable(error.to_string()))?;
            if whole.len() + piece.len() > limit {
                return Err(IngestError::TooLarge { limit });
            }
            room.add(piece.len())?;
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    };
    let after = ingest.arrival_deadline();
    timeout(after, collect)
        .await
        .map_err(|_elapsed| IngestError::Slow { after })?
}

fn success(payload: Payload, accepted: &Accepted) -> Response {
    let mut response = protobuf(StatusCode::OK, respond::body(payload, &accepted.rejections));
    if let Some(policy) = &accepted.policy {
        let (threshold, quorum_met) = respond::scalars(policy);
        let headers = response.headers_mut();
        if let Some(threshold) = threshold.and_then(|text| HeaderValue::try_from(text).ok()) {
            let name = HeaderName::from_static(metadata::HTTP_INGERO_THRESHOLD);
            headers.insert(name, threshold);
        }
        let name = HeaderName::from_static(metadata::HTTP_INGERO_QUORUM_MET);
        headers.insert(name, HeaderValue::from_static(quorum_met));
    }
    response
}

fn failure(error: &IngestError, number: u64) -> Response {
    let code = error.code();
    let message = respond::message(error, number);
    if matches!(error, IngestError::Unsupported(_)) {
        // In plain text: whoever sends the wrong type will not read protobuf.
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, message + "\n").into_response();
    }
    let status = StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = tonic_types::Status {
        code: code.grpc(),
        message,
        details: Vec::new(),
    };
    let mut response = protobuf(status, Bytes::from(body.encode_to_vec()));
    if matches!(code, Code::Busy) {
        let seconds = HeaderValue::from(respond::RETRY_AFTER.as_secs());
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

fn protobuf(status: StatusCode, body: Bytes) -> Response {
    let kind = HeaderValue::from_static(PROTOBUF);
    (status, [(CONTENT_TYPE, kind)], body).into_response()
}
