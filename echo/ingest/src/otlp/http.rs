//! OTLP over plain HTTP, with bodies in protobuf or JSON.
//!
//! | path | body |
//! |---|---|
//! | `POST /v1/metrics` | `ExportMetricsServiceRequest` |
//! | `POST /v1/logs` | `ExportLogsServiceRequest` |
//! | `POST /v1/traces` | `ExportTraceServiceRequest` |
//!
//! The way from the bytes to the acknowledgement is that of gRPC: the same limits, the same numbering of batches (the
//! metadata are headers), the same answers. Errors carry a `google.rpc.Status`, as the protocol asks, in the language of
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

use super::body::{Form, Language, Taken, arrived};
use super::decompress::Compression;
use super::{note, sender, writer};
use crate::accept::{Accepted, Ingest, IngestError, Sent};
use crate::decode::Payload;
use crate::respond;

#[cfg(test)]
mod tests;

/// The routes in front of an ingest path.
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
    let number = ingest.stats().saw_request();
    let refused = |language, error: &IngestError| {
        note(ingest, error, number);
        failure(language, error, number)
    };
    let language = match language(request.headers()) {
        Ok(language) => language,
        Err(unknown) => return refused(Language::Protobuf, &unknown),
    };
    match handle(ingest, (payload, language), request).await {
        Ok(accepted) => success((payload, language), &accepted),
        Err(error) => refused(language, &error),
    }
}

async fn handle(
    ingest: &Ingest,
    (payload, language): (Payload, Language),
    request: Request,
) -> Result<Accepted, IngestError> {
    let (parts, body) = request.into_parts();
    let form = Form {
        payload,
        language,
        compression: compression(&parts.headers)?,
    };
    let (sender, key) = sender(&parts.headers, &parts.extensions)?;
    let limit = ingest.config().max_message_bytes;
    let taken = arrived(ingest, ingest.budget().hold(&sender), (body, limit)).await?;
    let Taken { body, held } = form.read(taken, limit).await?;
    let sent = Sent {
        payload,
        body,
        held,
        key,
        writer: writer(&parts.extensions),
    };
    ingest.accept(sent).await
}

impl Language {
    /// Its type, in requests and in answers.
    const fn media_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}

/// The language that the request declares, whatever its parameters.
fn language(headers: &HeaderMap) -> Result<Language, IngestError> {
    let declared = text(headers, CONTENT_TYPE);
    let kind = declared.split(';').next().unwrap_or_default().trim();
    let known = [Language::Protobuf, Language::Json];
    let found = known
        .into_iter()
        .find(|language| language.media_type() == kind);
    found.ok_or_else(|| {
        let [protobuf, json] = known.map(Language::media_type);
        IngestError::Unsupported(format!(
            "bodies of type {kind:?} are not read: send Content-Type: {protobuf} \
             (OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf) or {json} (http/json)"
        ))
    })
}

/// How the body is compressed, if it is in a way that this listener reads.
fn compression(headers: &HeaderMap) -> Result<Option<Compression>, IngestError> {
    match text(headers, CONTENT_ENCODING).trim() {
        "" | "identity" => Ok(None),
        "gzip" => Ok(Some(Compression::Gzip)),
        "zstd" => Ok(Some(Compression::Zstd)),
        other => Err(IngestError::Unsupported(format!(
            "bodies compressed with {other:?} are not read: send them with gzip, zstd or as they are"
        ))),
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> String {
    let value = headers.get(name).map(HeaderValue::as_bytes);
    String::from_utf8_lossy(value.unwrap_or_default()).to_ascii_lowercase()
}

fn success((payload, language): (Payload, Language), accepted: &Accepted) -> Response {
    let body = match language {
        Language::Protobuf => respond::body(payload, &accepted.rejections),
        Language::Json => respond::json(payload, &accepted.rejections),
    };
    let mut response = answer(language, StatusCode::OK, body);
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

fn failure(language: Language, error: &IngestError, number: u64) -> Response {
    let code = error.code();
    let message = respond::message(error, number);
    if matches!(error, IngestError::Unsupported(_)) {
        // In plain text: whoever sends the wrong type will not read ours.
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, message + "\n").into_response();
    }
    let status = StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = match language {
        Language::Protobuf => {
            let status = tonic_types::Status {
                code: code.grpc(),
                message,
                details: Vec::new(),
            };
            status.encode_to_vec()
        }
        Language::Json => json!({"code": code.grpc(), "message": message})
            .to_string()
            .into_bytes(),
    };
    let mut response = answer(language, status, Bytes::from(body));
    if matches!(code, Code::Busy | Code::TooMany) {
        let seconds = HeaderValue::from(respond::RETRY_AFTER.as_secs());
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

fn answer(language: Language, status: StatusCode, body: Bytes) -> Response {
    let kind = HeaderValue::from_static(language.media_type());
    (status, [(CONTENT_TYPE, kind)], body).into_response()
}
