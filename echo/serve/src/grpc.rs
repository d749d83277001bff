//! The gRPC listener (port 4317 by default).
//!
//! Whoever speaks something else to it is told so: plain HTTP gets a status and a sentence, not a hanging connection.

use std::time::Duration;

use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Version};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use echo_core::error::Code;
use tokio::time::timeout;
use tonic::service::Routes;

use crate::audit::audited_refusals;
use crate::auth::only_writers;
use crate::connections::{self, Manner, Speech};
use crate::listener::Listener;
use crate::middleware::Terms;
use crate::tls::Encryption;
use echo_ingest::otlp::grpc::{LogsService, MetricsService, TracesService};
use echo_ingest::respond::rejection;

/// Longest time for one request, from its first header to its answer. Cuts off senders that trickle.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Serves until `shutdown` completes, then lets open requests finish.
pub async fn serve(
    listener: Listener,
    (metrics, logs, traces): (MetricsService, LogsService, TracesService),
    (terms, encryption): (Terms, Encryption),
    shutdown: impl Future<Output = ()> + Send,
) {
    let router = Routes::new(metrics)
        .add_service(logs)
        .add_service(traces)
        .into_axum_router()
        .layer(from_fn_with_state(terms.gate, only_writers))
        .layer(terms.panics.over_grpc())
        .layer(from_fn_with_state(terms.auditing, audited_refusals))
        .layer(from_fn(in_time))
        .layer(from_fn(only_grpc));
    let manner = Manner {
        encryption,
        speech: Speech::Either,
    };
    connections::serve(listener, router, manner, shutdown).await;
}

/// Cuts off senders that trickle.
async fn in_time(request: Request, next: Next) -> Response {
    timeout(REQUEST_TIMEOUT, next.run(request))
        .await
        .unwrap_or_else(|_late| {
            let after_s = REQUEST_TIMEOUT.as_secs();
            let message = format!("the request had not ended after {after_s} s");
            rejection(Code::Timeout, &message).into_http()
        })
}

/// Whether the content type is gRPC's with messages in protobuf, whatever its parameters. Its siblings, such as gRPC for
/// browsers or with JSON, frame or encode messages in another way and would be misread.
fn carries_protobuf(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next();
    let kind = kind.unwrap_or_default().trim_ascii();
    ["application/grpc", "application/grpc+proto"]
        .iter()
        .any(|accepted| kind.eq_ignore_ascii_case(accepted.as_bytes()))
}

/// HTTP/1 is accepted for this answer alone.
async fn only_grpc(request: Request, next: Next) -> Response {
    let content_type = request.headers().get(CONTENT_TYPE);
    let is_grpc = content_type.is_some_and(|value| carries_protobuf(value.as_bytes()));
    if is_grpc && request.version() == Version::HTTP_2 {
        return next.run(request).await;
    }
    let refusal = "this port speaks OTLP over gRPC (HTTP/2, content type application/grpc); \
                   send OTLP over HTTP to the OTLP/HTTP port\n";
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, refusal).into_response()
}

#[cfg(test)]
mod tests;
