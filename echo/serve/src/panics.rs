//! Handlers that panic: the request is answered, its connection and the others on it go on.

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

/// What the caller is told, who can do nothing about it.
const MESSAGE: &str = "Echo could not answer; its log says why";

/// Counts handlers that panicked. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Panics(Arc<AtomicU64>);

/// How a caller is told.
#[derive(Debug, Clone, Copy)]
enum Form {
    Http,
    Grpc,
}

/// Answers in place of a handler that panicked.
#[derive(Debug, Clone)]
pub(super) struct InPlace(Panics, Form);

impl Panics {
    /// Handlers that panicked since the start.
    pub fn caught(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Answers as HTTP does.
    pub(super) fn over_http(&self) -> CatchPanicLayer<InPlace> {
        CatchPanicLayer::custom(InPlace(self.clone(), Form::Http))
    }

    /// Answers as gRPC does.
    pub(super) fn over_grpc(&self) -> CatchPanicLayer<InPlace> {
        CatchPanicLayer::custom(InPlace(self.clone(), Form::Grpc))
    }
}

impl ResponseForPanic for InPlace {
    type ResponseBody = Body;

    fn response_for_panic(&mut self, err: Box<dyn Any + Send + 'static>) -> Response {
        let Self(panics, form) = self;
        panics.0.fetch_add(1, Relaxed);
        let said = err.downcast_ref::<&str>().copied();
        let said = said.or_else(|| err.downcast_ref::<String>().map(String::as_str));
        let said = said.unwrap_or("nothing");
        tracing::error!("a request met a defect of Echo, which says: {said}");
        match form {
            Form::Http => failure(Code::Internal, error_body(Code::Internal, MESSAGE)),
            Form::Grpc => respond::rejection(Code::Internal, MESSAGE).into_http(),
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

    use crate::audit::Auditing;
    use crate::audit::log::AuditLog;
    use crate::http;
    use crate::listener::{Connections, ListenConfig, Listener};
    use crate::middleware::Terms;
    use crate::tls::Encryption;

    async fn broken() -> &'static str {
        panic!("a test of what nobody expects");
    }

    #[tokio::test]
    async fn a_handler_that_panics_is_answered_and_its_connection_goes_on() {
        let (clock, log) = (Arc::new(SystemClock), AuditLog::memory());
        let terms = Terms {
            auditing: Auditing {
                log: log.clone(),
                clock: Arc::<SystemClock>::clone(&clock),
            },
            ..Terms::open(clock)
        };
        let routes = Router::new().route("/broken", get(broken));
        let routes = terms.guard(routes.route("/sound", get(|| async { "sound\n" })));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut connection = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let listener = Listener::new(listener, ListenConfig::default(), Connections::default());
        tokio::spawn(http::serve(listener, routes, Encryption::None, pending()));
        let mut asked = async |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            connection.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\n") || answer.ends_with(b"\r\n") {
                assert!(connection.read_buf(&mut answer).await.unwrap() > 0);
            }
            String::from_utf8(answer).unwrap()
        };
        let answer = asked("/broken").await;
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let error = &body["error"];
        assert_eq!(
            (error["code"].as_str(), error["message"].as_str()),
            (Some("internal"), Some(super::MESSAGE))
        );
        assert!(error["request_id"].is_string(), "{body}");
        assert!(asked("/sound").await.ends_with("\r\n\r\nsound\n"));
        assert_eq!(terms.panics.caught(), 1);
        let lines = log.lines();
        let told = lines.iter().map(|line| (&line["path"], &line["outcome"]));
        let told: Vec<_> = told
            .map(|(path, outcome)| format!("{path} {outcome}"))
            .collect();
        assert_eq!(told, ["\"/broken\" \"internal\"", "\"/sound\" \"ok\""]);
    }
}
