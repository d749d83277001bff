//! OTLP over plain HTTP, with bodies in protobuf or JSON.
//!
//! | path | body |
//! |---|---|
//! | `POST /v1/metrics` | `ExportMetricsServiceRequest` |
//! | `POST /v1/logs` | `ExportLogsServiceRequest` |
//! | `POST /v1/traces` | `ExportTraceServiceRequest` |
//!
//! The way from the bytes to the acknowledgement is that of gRPC: the same limits, the same numbering of batches (the
//! metadata are headers), the same answers. A body in JSON is translated into protobuf first. Errors carry a
//! `google.rpc.Status`, as the protocol asks, in the language of the request.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use echo_core::error::{Code, Coded};
use fleet_proto::metadata;
use prost::Message;
use serde_json::json;

use self::body::{Form, Media, compression};
use super::{note, sender, writer};
use crate::accept::{Accepted, Ingest, IngestError, Sent};
use crate::decode::Payload;
use crate::respond;

mod body;
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
    let refused = |media, error: &IngestError| {
        note(ingest, error, number);
        failure(media, error, number)
    };
    let media = match Media::of(request.headers()) {
        Ok(media) => media,
        Err(unknown) => return refused(Media::Protobuf, &unknown),
    };
    match handle(ingest, (payload, media), request).await {
        Ok(accepted) => success((payload, media), &accepted),
        Err(error) => refused(media, &error),
    }
}

async fn handle(
    ingest: &Ingest,
    (payload, media): (Payload, Media),
    request: Request,
) -> Result<Accepted, IngestError> {
    let (parts, body) = request.into_parts();
    let form = Form {
        payload,
        media,
        compression: compression(&parts.headers)?,
    };
    let (sender, key) = sender(&parts.headers, &parts.extensions)?;
    let (body, unpacking) = form.read((ingest, &sender), body).await?;
    let sent = Sent {
        sender: &sender,
        key,
        writer: &writer(&parts.extensions),
    };
    ingest.accept((payload, body), sent, unpacking).await
}

fn success((payload, media): (Payload, Media), accepted: &Accepted) -> Response {
    let body = match media {
        Media::Protobuf => respond::body(payload, &accepted.rejections),
        Media::Json => respond::json(payload, &accepted.rejections),
    };
    let mut response = answer(media, StatusCode::OK, body);
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

fn failure(media: Media, error: &IngestError, number: u64) -> Response {
    let code = error.code();
    let message = respond::message(error, number);
    if matches!(error, IngestError::Unsupported(_)) {
        // In plain text: whoever sends the wrong type will not read ours.
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, message + "\n").into_response();
    }
    let status = StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = match media {
        Media::Protobuf => {
            let status = tonic_types::Status {
                code: code.grpc(),
                message,
                details: Vec::new(),
            };
            status.encode_to_vec()
        }
        Media::Json => json!({"code": code.grpc(), "message": message})
            .to_string()
            .into_bytes(),
    };
    let mut response = answer(media, status, Bytes::from(body));
    if matches!(code, Code::Busy | Code::TooMany) {
        let seconds = HeaderValue::from(respond::RETRY_AFTER.as_secs());
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

fn answer(media: Media, status: StatusCode, body: Bytes) -> Response {
    let kind = HeaderValue::from_static(media.name());
    (status, [(CONTENT_TYPE, kind)], body).into_response()
}
