//! Audit log: one line of JSON for every request, including rejected and cancelled ones.
//!
//! The line is written when the request's guard is dropped, so no request ends without one. Fields
//! are added while the request is processed. Tokens are never logged, only their ids.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::USER_AGENT;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use echo_access::Principal;
use echo_core::clock::Clock;
use echo_core::error::Code;
use echo_core::text::is_hidden;
use echo_core::units::Nanos;
use echo_store::timings::Stopwatch;
use serde_json::{Map, Value, json};

use crate::audit::log::AuditLog;
use crate::request::RequestId;
use echo_ingest::memory_account::Peer;

pub mod log;

/// Longest text taken from a request, in characters.
const MAX_TEXT: usize = 256;

/// Longest input of a tool that is logged, in bytes of JSON.
const MAX_INPUT: usize = 2_048;

/// Header with the status of a gRPC call.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Header with the revision of the Model Context Protocol.
const MCP_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// Audit record of one request. Clones share it.
#[derive(Debug, Clone)]
pub struct AuditRecord(Arc<Mutex<RecordState>>);

struct RecordState {
    head: RequestHead,
    fields: Map<String, Value>,
    outcome: Option<Code>,
    is_written: bool,
    began: Stopwatch,
    log: AuditLog,
}

/// What a request states about itself, in shared buffers: it is formatted only if a line is written,
/// which accepted ingest requests never need.
struct RequestHead {
    arrived: Nanos,
    id: Option<RequestId>,
    peer: Option<Peer>,
    method: Method,
    uri: Uri,
    client: Option<HeaderValue>,
    mcp_version: Option<HeaderValue>,
}

impl RequestHead {
    fn new(arrived: Nanos, request: &Request) -> Self {
        let (headers, extensions) = (request.headers(), request.extensions());
        Self {
            arrived,
            id: extensions.get().cloned(),
            peer: extensions.get().copied(),
            method: request.method().clone(),
            uri: request.uri().clone(),
            client: headers.get(USER_AGENT).cloned(),
            mcp_version: headers.get(MCP_VERSION).cloned(),
        }
    }

    fn put_into(&self, fields: &mut Map<String, Value>) {
        let mut put = |name: &str, value: Value| {
            fields.insert(name.to_owned(), value);
        };
        put("ts", json!(self.arrived.to_string()));
        put("request_id", json!(self.id.as_ref().map(RequestId::as_str)));
        put("peer", json!(self.peer.map(|peer| peer.0.ip().to_string())));
        put("transport", json!(self.transport()));
        put("method", json!(self.method.as_str()));
        put("path", json!(sanitize(self.uri.path())));
        put("client", json!(text(self.client.as_ref())));
    }

    fn transport(&self) -> String {
        if !self.uri.path().starts_with("/mcp") {
            return "http".to_owned();
        }
        let version = text(self.mcp_version.as_ref());
        version.map_or_else(|| "mcp".to_owned(), |version| format!("mcp {version}"))
    }
}

/// Readable text of a header.
fn text(value: Option<&HeaderValue>) -> Option<String> {
    value?.to_str().ok().map(sanitize)
}

impl fmt::Debug for RecordState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordState").finish_non_exhaustive()
    }
}

impl AuditRecord {
    /// Starts the record of a request.
    fn begin(log: &AuditLog, clock: &dyn Clock, request: &Request) -> Self {
        Self(Arc::new(Mutex::new(RecordState {
            head: RequestHead::new(clock.now(), request),
            fields: Map::new(),
            outcome: None,
            is_written: false,
            began: Stopwatch::start(),
            log: log.clone(),
        })))
    }

    /// Records the principal.
    pub fn set_principal(&self, principal: &Principal) {
        let mut state = self.state();
        state.put("principal", json!(sanitize(&principal.id)));
        state.put("auth_kind", json!(principal.kind.name()));
        state.put("token_id", json!(sanitize(&principal.token_id)));
    }

    /// Records why authentication failed.
    pub fn set_rejection(&self, reason: &'static str) {
        self.state().put("rejected", json!(reason));
    }

    /// Records the tool and its input. SQL is logged with its hash, so that equal statements can be
    /// found.
    pub fn set_tool_call(&self, tool: &str, input: &Value) {
        let mut state = self.state();
        state.put("tool", json!(sanitize(tool)));
        if let Some(cluster) = input.get("cluster").and_then(Value::as_str) {
            state.put("cluster", json!(sanitize(cluster)));
        }
        if let Some(sql) = input.get("sql").and_then(Value::as_str) {
            let hash = digest(&SHA256, sql.as_bytes());
            state.put("sql_sha256", json!(hex(hash.as_ref())));
        }
        let text = input.to_string();
        let is_whole = text.len() <= MAX_INPUT;
        let input = if is_whole {
            input.clone()
        } else {
            json!(text.chars().take(MAX_INPUT).collect::<String>())
        };
        state.put("input", input);
        state.put("input_truncated", json!(!is_whole));
    }

    /// Records the outcome of a tool, where the response status does not show it.
    pub fn set_outcome(&self, outcome: Code) {
        self.state().outcome = Some(outcome);
    }

    /// Writes the line, unless it has been written.
    fn finish(&self, outcome: &str, response: Option<&Response>) {
        let mut state = self.state();
        if state.is_written {
            return;
        }
        state.is_written = true;
        let outcome = match state.outcome {
            Some(code) if response.is_some() => code.name(),
            _ => outcome,
        };
        state.put("outcome", json!(outcome));
        state.put(
            "status",
            json!(response.map(|response| response.status().as_u16())),
        );
        let bytes = response.and_then(|response| response.body().size_hint().exact());
        state.put("bytes", json!(bytes));
        let millis = state.began.elapsed().as_secs_f64() * 1e3;
        state.put("duration_ms", json!((millis * 1e3).round() / 1e3));
        let mut fields = std::mem::take(&mut state.fields);
        state.head.put_into(&mut fields);
        let line = Value::Object(fields).to_string();
        state.log.write(&line);
    }

    // No code panics while it holds this lock.
    fn state(&self) -> MutexGuard<'_, RecordState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordState {
    fn put(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }
}

/// Writes the line when the request is dropped before it has a response.
struct FinishOnDrop(AuditRecord);

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        let outcome = if std::thread::panicking() {
            Code::Internal.name()
        } else {
            "cancelled"
        };
        self.0.finish(outcome, None);
    }
}

/// Audit log and clock of the audit middleware.
#[derive(Debug, Clone)]
pub struct AuditContext {
    /// Destination of the lines.
    pub log: AuditLog,
    /// Clock of their timestamps.
    pub clock: Arc<dyn Clock>,
}

/// Writes a line for every request except probes.
pub(crate) async fn audit_requests(
    State(audit): State<AuditContext>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_probe(request.uri().path()) {
        return next.run(request).await;
    }
    let record = AuditRecord::begin(&audit.log, &*audit.clock, &request);
    request.extensions_mut().insert(record.clone());
    let guard = FinishOnDrop(record);
    let response = next.run(request).await;
    let outcome = Code::from_http(response.status().as_u16());
    let outcome = match outcome {
        Some(code) => code.name(),
        None if response.status().is_success() => "ok",
        None => Code::Invalid.name(),
    };
    guard.0.finish(outcome, Some(&response));
    response
}

/// Writes a line for every ingest request that is rejected because of its sender. Accepted
/// requests, thousands per second, are counted by metrics.
pub(crate) async fn audit_refusals(
    State(audit): State<AuditContext>,
    mut request: Request,
    next: Next,
) -> Response {
    let record = AuditRecord::begin(&audit.log, &*audit.clock, &request);
    request.extensions_mut().insert(record.clone());
    let response = next.run(request).await;
    let refusal = record
        .state()
        .outcome
        .or_else(|| is_forbidden(&response).then_some(Code::Forbidden));
    if let Some(code) = refusal {
        record.finish(code.name(), Some(&response));
    }
    response
}

fn is_forbidden(response: &Response) -> bool {
    let grpc = response
        .headers()
        .get(GRPC_STATUS)
        .and_then(|value| value.to_str().ok());
    response.status() == StatusCode::FORBIDDEN
        || grpc.and_then(|text| text.parse().ok()) == Some(Code::Forbidden.grpc())
}

/// Returns whether the path is a probe, requested every few seconds and without content worth
/// auditing.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves
        .filter_map(|half| DIGITS.get(usize::from(half)))
        .collect()
}

/// Truncates a text from a request and removes invisible characters.
fn sanitize(text: &str) -> String {
    let plain = text.chars().filter(|c| !is_hidden(*c));
    plain.take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests;
