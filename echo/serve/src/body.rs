//! Request bodies of the API: read in full before the handler runs, with limits on size and time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use echo_core::error::Code;
use echo_tools::error_body;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};

use crate::request::MAX_BODY_BYTES;
use crate::response::failure;

/// Longest time for a body, which has 64 KiB at most.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest time and largest size for which the body of a refused request is read.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_DRAINED_BYTES: usize = 1 << 20;

/// Body of which the rest comes back when the request is dropped.
struct ReturnedBody {
    chunks: Option<BodyDataStream>,
    rest: Option<oneshot::Sender<BodyDataStream>>,
}

impl Stream for ReturnedBody {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut self.chunks {
            Some(chunks) => Pin::new(chunks).poll_next(cx),
            None => Poll::Ready(None),
        }
    }
}

impl Drop for ReturnedBody {
    fn drop(&mut self) {
        if let Some((rest, chunks)) = self.rest.take().zip(self.chunks.take()) {
            // The receiver is gone when the connection is closed.
            drop(rest.send(chunks));
        }
    }
}

/// Reads the rest of the body before the response is sent. A client that is still sending when it
/// is refused gets a reset of its HTTP/2 stream otherwise, in place of the response.
pub(super) async fn drain_refused_body(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (rest, mut returned) = oneshot::channel();
    let request = request.map(|body| {
        Body::from_stream(ReturnedBody {
            chunks: Some(body.into_data_stream()),
            rest: Some(rest),
        })
    });
    let response = next.run(request).await;
    // A body that was too slow once is not waited for again.
    let is_late = response.status() == StatusCode::GATEWAY_TIMEOUT;
    if let Ok(chunks) = returned.try_recv()
        && !is_late
    {
        // A body that is too slow or too long is cut off.
        let _cut_off = timeout(DRAIN_TIMEOUT, drain(chunks)).await;
    }
    response
}

async fn drain(mut chunks: BodyDataStream) {
    let mut n_read = 0;
    while let Some(Ok(chunk)) = chunks.next().await {
        n_read += chunk.len();
        if n_read > MAX_DRAINED_BYTES {
            break;
        }
    }
}

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
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
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

    #[tokio::test]
    async fn the_body_of_a_refused_request_is_read_before_the_response() {
        let middleware = Middleware::without_auth(Arc::new(SystemClock));
        let service = middleware.wrap(Router::new().route("/", post(|| async {})));
        let n_read = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&n_read);
        let chunks = tokio_stream::iter(0..500).map(move |_| {
            counter.fetch_add(1, Relaxed);
            Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1_000]))
        });
        let request = Request::post("/")
            .header("host", "elsewhere.example")
            .body(Body::from_stream(chunks))
            .unwrap();
        let response = service.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 403);
        assert_eq!(n_read.load(Relaxed), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_within_the_timeout_is_accepted() {
        let (status, body, _) = send_slowly(Duration::from_secs(9), 4).await;
        assert_eq!((status, body), (200, Value::from(4)));
    }
}
