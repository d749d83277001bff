//! Request bodies of the API: read in full before the handler runs, with limits on size and time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use echo_core::error::Code;
use echo_tools::error_body;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::request::MAX_BODY_BYTES;
use crate::response::failure;

/// Longest time for a body, which has 64 KiB at most.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the body in full and passes the request on.
pub(super) async fn buffer_body(
    State(limit): State<Duration>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let refused = match timeout(limit, read_body(body)).await {
        Ok(Ok(bytes)) => {
            return next
                .run(Request::from_parts(parts, Body::from(bytes)))
                .await;
        }
        Ok(Err(refused)) => refused,
        Err(_late) => {
            let after_s = limit.as_secs();
            let message = format!("the body was not received within {after_s} s");
            (Code::Timeout, message)
        }
    };
    let (code, message) = refused;
    failure(code, error_body(code, &message))
}

async fn read_body(body: Body) -> Result<Bytes, (Code, String)> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| (Code::Invalid, error.to_string()))?;
        if bytes.len() + chunk.len() > MAX_BODY_BYTES {
            let message = format!("the body is longer than {MAX_BODY_BYTES} bytes");
            return Err((Code::TooLarge, message));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use axum::Router;
    use axum::body::{Body, Bytes, to_bytes};
    use axum::http::Request;
    use axum::routing::post;
    use echo_core::clock::SystemClock;
    use serde_json::Value;
    use tokio::time::{Instant, interval};
    use tokio_stream::StreamExt;
    use tokio_stream::wrappers::IntervalStream;
    use tower::ServiceExt;

    use super::BODY_TIMEOUT;
    use crate::middleware::Middleware;

    /// Sends a body one byte per `pause`. Returns status, body and duration of the response.
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's time, which the test has paused"
    )]
    async fn send_slowly(pause: Duration, bytes: usize) -> (u16, Value, Duration) {
        let middleware = Middleware::without_auth(Arc::new(SystemClock));
        let echoing = post(|body: Bytes| async move { format!("{}", body.len()) });
        let service = middleware.wrap(Router::new().route("/", echoing));
        let drops = IntervalStream::new(interval(pause));
        let drops = drops.map(|_| Ok::<_, Infallible>(Bytes::from_static(b"x")));
        let request = Request::post("/")
            .header("host", "localhost")
            .body(Body::from_stream(drops.take(bytes)))
            .unwrap();
        let begun = Instant::now();
        let response = service.oneshot(request).await.unwrap();
        let took = begun.elapsed();
        let (status, body) = (response.status().as_u16(), response.into_body());
        let body = to_bytes(body, usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap(), took)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_times_out() {
        let (status, body, took) = send_slowly(Duration::from_secs(9), 1_000).await;
        assert_eq!((status, took), (504, BODY_TIMEOUT));
        assert_eq!(body["error"]["code"], "timeout");
        let message = "the body was not received within 30 s";
        assert_eq!(body["error"]["message"], message);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_within_the_timeout_is_accepted() {
        let (status, body, _) = send_slowly(Duration::from_secs(9), 4).await;
        assert_eq!((status, body), (200, Value::from(4)));
    }
}
