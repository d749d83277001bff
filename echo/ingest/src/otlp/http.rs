//! OTLP over HTTP, with bodies in protobuf or JSON.
//!
//! | path | body |
//! |---|---|
//! | `POST /v1/metrics` | `ExportMetricsServiceRequest` |
//! | `POST /v1/logs` | `ExportLogsServiceRequest` |
//! | `POST /v1/traces` | `ExportTraceServiceRequest` |
//! Processing is the same as over gRPC: the same limits, batch numbers (metadata are headers) and
//! responses. Errors have a `google.rpc.Status` body, as the protocol requires, in the format of
//! the request.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use echo_core::error::{Code, Coded};
use fleet_proto::metadata;
use prost::Message;
use serde_json::json;

use super::body::{Encoding, Format, ReceivedBody, receive};
use super::decompress::Compression;
use super::{account_and_key, record_failure, sender_auth};
use crate::accept::{Accepted, Ingest, IngestError, IngestRequest};
use crate::decode::Payload;
use crate::respond;

#[cfg(test)]
mod tests;

/// Returns the routes for an ingest path.
pub fn router(ingest: Ingest) -> Router {
    Router::new()
        .route("/v1/metrics", post(metrics))
        .route("/v1/logs", post(logs))
        .route("/v1/traces", post(traces))
        .with_state(ingest)
}

async fn metrics(State(ingest): State<Ingest>, request: Request) -> Response {
    export(&ingest, Payload::Metrics, request).await
}

async fn logs(State(ingest): State<Ingest>, request: Request) -> Response {
    export(&ingest, Payload::Logs, request).await
}

async fn traces(State(ingest): State<Ingest>, request: Request) -> Response {
    export(&ingest, Payload::Traces, request).await
}

async fn export(ingest: &Ingest, payload: Payload, request: Request) -> Response {
    let number = ingest.stats().count_request();
    let reject = |format, error: &IngestError| {
        record_failure(ingest, error, number);
        failure(format, error, number)
    };
    let format = match format(request.headers()) {
        Ok(format) => format,
        Err(unknown) => return reject(Format::Protobuf, &unknown),
    };
    match handle(ingest, payload, format, request).await {
        Ok(accepted) => success(payload, format, &accepted),
        Err(error) => reject(format, &error),
    }
}

async fn handle(
    ingest: &Ingest,
    payload: Payload,
    format: Format,
    request: Request,
) -> Result<Accepted, IngestError> {
    let (parts, body) = request.into_parts();
    let encoding = Encoding {
        payload,
        format,
        compression: compression(&parts.headers)?,
    };
    let (account, key) = account_and_key(&parts.headers, &parts.extensions)?;
    let limit = ingest.config().max_message_bytes;
    let received = receive(ingest, ingest.budget().reserve(&account), body, limit).await?;
    let ReceivedBody { body, memory } = encoding.decode(received, limit).await?;
    let request = IngestRequest {
        payload,
        body,
        memory,
        key,
        auth: sender_auth(&parts.extensions),
    };
    ingest.accept(request).await
}

impl Format {
    /// Returns the media type.
    const fn media_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}

/// Returns the format of the declared content type, ignoring parameters.
fn format(headers: &HeaderMap) -> Result<Format, IngestError> {
    let declared = text(headers, CONTENT_TYPE);
    let kind = declared.split(';').next().unwrap_or_default().trim();
    let known = [Format::Protobuf, Format::Json];
    let found = known.into_iter().find(|format| format.media_type() == kind);
    found.ok_or_else(|| {
        let [protobuf, json] = known.map(Format::media_type);
        IngestError::Unsupported(format!(
            "unsupported content type {kind:?}: send Content-Type: {protobuf} \
             (OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf) or {json} (http/json)"
        ))
    })
}

/// Returns the declared compression.
fn compression(headers: &HeaderMap) -> Result<Option<Compression>, IngestError> {
    match text(headers, CONTENT_ENCODING).trim() {
        "" | "identity" => Ok(None),
        "gzip" => Ok(Some(Compression::Gzip)),
        "zstd" => Ok(Some(Compression::Zstd)),
        other => Err(IngestError::Unsupported(format!(
            "unsupported body compression {other:?}: use gzip, zstd or no compression"
        ))),
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> String {
    let value = headers.get(name).map(HeaderValue::as_bytes);
    String::from_utf8_lossy(value.unwrap_or_default()).to_ascii_lowercase()
}

fn success(payload: Payload, format: Format, accepted: &Accepted) -> Response {
    let body = match format {
        Format::Protobuf => respond::body(payload, &accepted.rejections),
        Format::Json => respond::json(payload, &accepted.rejections),
    };
    let mut response = answer(format, StatusCode::OK, body);
    if let Some(policy) = &accepted.policy {
        let (threshold, quorum_met) = respond::ingero_scalars(policy);
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

fn failure(format: Format, error: &IngestError, number: u64) -> Response {
    let code = error.code();
    let message = respond::message(error, number);
    if matches!(error, IngestError::Unsupported(_)) {
        // Plain text: a sender with another content type would not parse ours.
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, message + "\n").into_response();
    }
    let status = StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = match format {
        Format::Protobuf => {
            let status = tonic_types::Status {
                code: code.grpc(),
                message,
                details: Vec::new(),
            };
            status.encode_to_vec()
        }
        Format::Json => json!({"code": code.grpc(), "message": message})
            .to_string()
            .into_bytes(),
    };
    let mut response = answer(format, status, Bytes::from(body));
    if matches!(code, Code::Busy | Code::TooMany) {
        let seconds = HeaderValue::from(respond::RETRY_AFTER.as_secs());
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

fn answer(format: Format, status: StatusCode, body: Bytes) -> Response {
    let kind = HeaderValue::from_static(format.media_type());
    (status, [(CONTENT_TYPE, kind)], body).into_response()
}
