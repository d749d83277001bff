//! Panic handler: the request gets an error, and its connection stays open.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::body::Body;
use axum::response::Response;
use echo_core::error::Code;
use echo_tools::error_body;
use tower_http::catch_panic::{CatchPanicLayer, ResponseForPanic};

use crate::response::failure;
use echo_ingest::respond;

/// Message for the caller, which cannot fix the error.
const MESSAGE: &str = "internal error; see the log of Echo for the cause";

/// Count of handlers that panicked. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Panics(Arc<AtomicU64>);

/// Protocol of the error response.
#[derive(Debug, Clone, Copy)]
enum Protocol {
    Http,
    Grpc,
}

/// Responder for handlers that panicked.
#[derive(Debug, Clone)]
pub(super) struct PanicResponse(Panics, Protocol);

impl Panics {
    /// Returns the number of handlers that panicked since the start.
    pub fn caught(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Returns a layer that responds over HTTP.
    pub(super) fn http_layer(&self) -> CatchPanicLayer<PanicResponse> {
        CatchPanicLayer::custom(PanicResponse(self.clone(), Protocol::Http))
    }

    /// Returns a layer that responds over gRPC.
    pub(super) fn grpc_layer(&self) -> CatchPanicLayer<PanicResponse> {
        CatchPanicLayer::custom(PanicResponse(self.clone(), Protocol::Grpc))
    }
}

impl ResponseForPanic for PanicResponse {
    type ResponseBody = Body;

    fn response_for_panic(&mut self, err: Box<dyn Any + Send + 'static>) -> Response {
        let Self(panics, protocol) = self;
        panics.0.fetch_add(1, Relaxed);
        let message = err.downcast_ref::<&str>().copied();
        let message = message.or_else(|| err.downcast_ref::<String>().map(String::as_str));
        let message = message.unwrap_or("(no message)");
        tracing::error!("request handler panicked: {message}");
        match protocol {
            Protocol::Http => failure(Code::Internal, error_body(Code::Internal, MESSAGE)),
            Protocol::Grpc => respond::rejection(Code::Internal, MESSAGE).into_http(),
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "a server has to run beside its client"
)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use axum::Router;
    use axum::routing::get;
    use echo_core::clock::SystemClock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use crate::audit::AuditContext;
    use crate::audit::log::AuditLog;
    use crate::http;
    use crate::listener::{Connections, ListenConfig, Listener};
    use crate::middleware::Middleware;
    use crate::tls::Encryption;

    async fn broken() -> &'static str {
        panic!("a simulated bug");
    }

    #[tokio::test]
    async fn a_panicking_handler_gets_an_error_response_and_its_connection_stays_open() {
        let (clock, log) = (Arc::new(SystemClock), AuditLog::memory());
        let middleware = Middleware {
            audit: AuditContext {
                log: log.clone(),
                clock: Arc::<SystemClock>::clone(&clock),
            },
            ..Middleware::without_auth(clock)
        };
        let routes = Router::new().route("/broken", get(broken));
        let routes = middleware.wrap(routes.route("/sound", get(|| async { "sound\n" })));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut connection = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let listener = Listener::new(listener, ListenConfig::default(), Connections::default());
        tokio::spawn(http::serve(listener, routes, Encryption::None, pending()));
        let mut get_path = async |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            connection.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\n") || answer.ends_with(b"\r\n") {
                assert!(connection.read_buf(&mut answer).await.unwrap() > 0);
            }
            String::from_utf8(answer).unwrap()
        };
        let answer = get_path("/broken").await;
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let error = &body["error"];
        assert_eq!(
            (error["code"].as_str(), error["message"].as_str()),
            (Some("internal"), Some(super::MESSAGE))
        );
        assert!(error["request_id"].is_string(), "{body}");
        assert!(get_path("/sound").await.ends_with("\r\n\r\nsound\n"));
        assert_eq!(middleware.panics.caught(), 1);
        let lines = log.lines();
        let outcomes = lines.iter().map(|line| (&line["path"], &line["outcome"]));
        let outcomes: Vec<_> = outcomes
            .map(|(path, outcome)| format!("{path} {outcome}"))
            .collect();
        assert_eq!(outcomes, ["\"/broken\" \"internal\"", "\"/sound\" \"ok\""]);
    }
}
