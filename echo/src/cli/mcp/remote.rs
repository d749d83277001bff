//! Client of the MCP endpoint of a running instance.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::http::{Request, Response};
use echo_core::error::Code;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use crate::cli::mcp::McpArgs;
use crate::cli::mcp::headers::{HeaderArguments, VERSION, header_arguments, headers_for, version};
use crate::cli::{CliError, MAX_ANSWER_BYTES, parse_json, transport};

/// Connection to the MCP endpoint.
#[derive(Debug)]
pub(super) struct Remote {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    server: String,
    /// Request timeout.
    timeout: Duration,
    path: &'static str,
    authorization: Option<HeaderValue>,
    /// Protocol revision negotiated by `initialize`, in revisions that have it.
    negotiated: Mutex<Option<HeaderValue>>,
    header_arguments: OnceCell<HeaderArguments>,
}

impl Remote {
    pub(super) fn new(args: &McpArgs) -> Result<Self, CliError> {
        let authorization = args.connection.authorization()?.map(|shown| {
            let mut value = HeaderValue::try_from(shown);
            if let Ok(value) = &mut value {
                value.set_sensitive(true);
            }
            value.map_err(|_unprintable| {
                CliError::Usage("the token is not a valid header value".to_owned())
            })
        });
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(args.connection.connect_timeout()));
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(args.connection.tls()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            server: args.connection.base()?.to_owned(),
            timeout: args.connection.timeout,
            path: if args.compat { "/mcp/compat" } else { "/mcp" },
            authorization: authorization.transpose()?,
            negotiated: Mutex::new(None),
            header_arguments: OnceCell::new(),
        })
    }

    /// Forwards a message. Returns the response as one line; `None` for a notification.
    pub(super) async fn forward(&self, message: Value) -> Option<String> {
        let id = message.get("id").cloned();
        let result = timeout(self.timeout, self.exchange(&message)).await;
        let result = result.unwrap_or_else(|_late| {
            Err(CliError::Timeout {
                server: self.server.clone(),
                timeout: self.timeout,
            })
        });
        let id = id?;
        let (status, body) = match result {
            Ok(answer) => answer,
            Err(error) => {
                let body = match &error {
                    CliError::Api { body, .. } => serde_json::from_slice(body).ok(),
                    _ => None,
                };
                return Some(error_response(&id, &error.to_string(), body));
            }
        };
        match serde_json::from_slice::<Value>(&body) {
            Ok(answer) if answer.get("jsonrpc").is_some() => {
                if message
                    .get("method")
                    .is_some_and(|method| method == "initialize")
                {
                    self.record_version(&answer);
                }
                // Serialised again, since a body may contain line feeds.
                Some(answer.to_string())
            }
            Ok(answer) => {
                let message = answer.pointer("/error/message").and_then(Value::as_str);
                let message = message
                    .unwrap_or("the server is not a fleet-echo server")
                    .to_owned();
                Some(error_response(&id, &message, Some(answer)))
            }
            Err(_) => Some(error_response(
                &id,
                &format!("unexpected response with status {status}"),
                None,
            )),
        }
    }

    async fn exchange(&self, message: &Value) -> Result<(u16, Vec<u8>), CliError> {
        let mut request = Request::post(format!("{}{}", self.server, self.path))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers(message).await?);
        }
        match request.body(Body::from(message.to_string())) {
            Ok(request) => self.send(request).await,
            Err(error) => Err(self.unreachable(error).await),
        }
    }

    async fn headers(&self, message: &Value) -> Result<HeaderMap, CliError> {
        let mut headers = HeaderMap::new();
        if let Some(version) = version(message) {
            headers = headers_for(message, self.header_arguments(message).await?);
            if let Ok(version) = HeaderValue::from_str(version) {
                headers.insert(VERSION, version);
            }
        } else if let Some(version) = self.negotiated() {
            headers.insert(VERSION, version);
        }
        Ok(headers)
    }

    /// Returns the arguments that are repeated in headers, fetched at the first tool call.
    async fn header_arguments(&self, message: &Value) -> Result<&HeaderArguments, CliError> {
        const NONE: &HeaderArguments = &HeaderArguments::new();
        if message
            .get("method")
            .is_none_or(|method| method != "tools/call")
        {
            return Ok(NONE);
        }
        let list = || async {
            let request = Request::get(format!("{}/api/v1/tools/list", self.server));
            let request = match request.body(Body::empty()) {
                Ok(request) => request,
                Err(error) => return Err(self.unreachable(error).await),
            };
            let (status, body) = self.send(request).await?;
            let (_, list) = parse_json(&self.server, (status, body))?;
            // An invalid list must not be cached: later calls would lack their headers.
            header_arguments(&list).ok_or_else(|| CliError::NotEcho {
                server: self.server.clone(),
                status,
            })
        };
        self.header_arguments.get_or_try_init(list).await
    }

    async fn send(&self, mut request: Request<Body>) -> Result<(u16, Vec<u8>), CliError> {
        if let Some(authorization) = &self.authorization {
            let headers = request.headers_mut();
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let response: Response<Body> = match self.client.request(request).await {
            Ok(response) => response.map(Body::new),
            Err(error) if error.is_connect() => {
                return Err(transport::connect_error(&self.server, &error));
            }
            Err(error) => return Err(self.unreachable(error).await),
        };
        let status = response.status().as_u16();
        let limit = usize::try_from(MAX_ANSWER_BYTES).unwrap_or(usize::MAX);
        match to_bytes(response.into_body(), limit).await {
            Ok(body) => Ok((status, body.to_vec())),
            Err(error) => Err(self.unreachable(error).await),
        }
    }

    async fn unreachable(&self, error: impl Error + Send + 'static) -> CliError {
        let server = self.server.clone();
        let mapped = spawn_blocking(move || transport::response_error(&server, &error));
        let failed = |panicked: JoinError| transport::connect_error(&self.server, &panicked);
        mapped.await.unwrap_or_else(failed)
    }

    fn record_version(&self, answer: &Value) {
        let version = answer
            .pointer("/result/protocolVersion")
            .and_then(Value::as_str);
        let version = version.and_then(|version| HeaderValue::from_str(version).ok());
        *self
            .negotiated
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = version;
    }

    fn negotiated(&self) -> Option<HeaderValue> {
        let negotiated = self
            .negotiated
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        negotiated.clone()
    }
}

/// Builds a protocol error for a request that has no response from the server.
fn error_response(id: &Value, message: &str, data: Option<Value>) -> String {
    let number = Code::Internal.json_rpc();
    let mut error = json!({ "code": number, "message": message });
    if let (Some(data), Some(error)) = (data, error.as_object_mut()) {
        error.insert("data".to_owned(), data);
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()
}
