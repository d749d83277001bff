//! The gRPC listener (port 4317 by default).
//!
//! Clients of other protocols get an error instead of a hanging connection: plain HTTP gets a
//! status and a message.

use std::time::Duration;

use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Version};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use echo_core::error::Code;
use tokio::time::timeout;
use tonic::service::Routes;
use tower::ServiceBuilder;

use crate::audit::audit_refusals;
use crate::auth::authorize_ingest;
use crate::connections::{self, ConnectionOptions, DefaultProtocol};
use crate::listener::Listener;
use crate::middleware::Middleware;
use crate::tls::Encryption;
use echo_ingest::otlp::grpc::{LogsService, MetricsService, TracesService};
use echo_ingest::respond::rejection;

/// Longest time for one request, from its first header to its response. Cuts off slow senders.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Serves until `shutdown` completes, then finishes requests in flight.
pub async fn serve(
    listener: Listener,
    (metrics, logs, traces): (MetricsService, LogsService, TracesService),
    (middleware, encryption): (Middleware, Encryption),
    shutdown: impl Future<Output = ()> + Send,
) {
    // One layer, since each one that a router has allocates for each request.
    let layers = ServiceBuilder::new()
        .layer(from_fn(require_grpc))
        .layer(from_fn(limit_duration))
        .layer(from_fn_with_state(middleware.audit, audit_refusals))
        .layer(middleware.panics.grpc_layer())
        .layer(from_fn_with_state(middleware.auth, authorize_ingest));
    let router = Routes::new(metrics)
        .add_service(logs)
        .add_service(traces)
        .into_axum_router()
        .layer(layers);
    let options = ConnectionOptions {
        encryption,
        default_protocol: DefaultProtocol::Detect,
    };
    connections::serve(listener, router, options, shutdown).await;
}

/// Cuts off slow senders.
async fn limit_duration(request: Request, next: Next) -> Response {
    timeout(REQUEST_TIMEOUT, next.run(request))
        .await
        .unwrap_or_else(|_late| {
            let after_s = REQUEST_TIMEOUT.as_secs();
            let message = format!("the request was not completed within {after_s} s");
            rejection(Code::Timeout, &message).into_http()
        })
}

/// Returns whether the content type is gRPC with protobuf messages, ignoring parameters. Variants
/// such as gRPC-Web or gRPC with JSON use another framing or encoding.
fn carries_protobuf(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next();
    let kind = kind.unwrap_or_default().trim_ascii();
    ["application/grpc", "application/grpc+proto"]
        .iter()
        .any(|accepted| kind.eq_ignore_ascii_case(accepted.as_bytes()))
}

/// Rejects requests that are not gRPC. HTTP/1 is accepted only to send this response.
async fn require_grpc(request: Request, next: Next) -> Response {
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
