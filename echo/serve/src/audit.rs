//! One line of JSON for every attempt to ask something, also for those that are turned down or hung up on.
//!
//! The line is written when what answers the attempt is dropped, so there is no way of ending without one. What is known of
//! the attempt is noted along its way. A token never gets here, only what names it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::USER_AGENT;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use echo_access::Principal;
use echo_core::clock::Clock;
use echo_core::error::Code;
use echo_core::text::is_hidden;
use echo_store::timings::Stopwatch;
use serde_json::{Map, Value, json};

use crate::audit::log::AuditLog;
use crate::request::RequestId;
use echo_ingest::memory_account::Peer;

pub mod log;

/// Longest text that is taken over from outside, in characters.
const MAX_TEXT: usize = 256;

/// Longest input of a tool that is written out, in bytes of JSON.
const MAX_INPUT: usize = 2_048;

/// Header that says how a call over gRPC ended.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Header that says which revision of the Model Context Protocol is spoken.
const MCP_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// What is known of an attempt so far. Clones are the same.
#[derive(Debug, Clone)]
pub struct Attempt(Arc<Mutex<Known>>);

struct Known {
    fields: Map<String, Value>,
    outcome: Option<Code>,
    is_written: bool,
    began: Stopwatch,
    log: AuditLog,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

impl Attempt {
    /// An attempt that begins now.
    fn begin((log, clock): (&AuditLog, &dyn Clock), request: &Request) -> Self {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| {
            fields.insert(name.to_owned(), value);
        };
        put("ts", json!(clock.now().to_string()));
        let id = request.extensions().get::<RequestId>();
        put("request_id", json!(id.map(RequestId::as_str)));
        let peer = request.extensions().get::<Peer>();
        put("peer", json!(peer.map(|peer| peer.0.ip().to_string())));
        put("transport", json!(transport(request)));
        put("method", json!(request.method().as_str()));
        put("path", json!(shown(request.uri().path())));
        put(
            "client",
            json!(text(request.headers(), &USER_AGENT).map(shown)),
        );
        Self(Arc::new(Mutex::new(Known {
            fields,
            outcome: None,
            is_written: false,
            began: Stopwatch::start(),
            log: log.clone(),
        })))
    }

    /// Notes who it is.
    pub fn by(&self, principal: &Principal) {
        let mut known = self.known();
        known.put("principal", json!(shown(&principal.id)));
        known.put("auth_kind", json!(principal.kind.name()));
        known.put("token_id", json!(shown(&principal.token_id)));
    }

    /// Notes why nobody knows who it is.
    pub fn rejected(&self, why: &'static str) {
        self.known().put("rejected", json!(why));
    }

    /// Notes which tool is asked what. SQL is written beside its hash, by which equal statements are found.
    pub fn asks(&self, tool: &str, input: &Value) {
        let mut known = self.known();
        known.put("tool", json!(shown(tool)));
        if let Some(cluster) = input.get("cluster").and_then(Value::as_str) {
            known.put("cluster", json!(shown(cluster)));
        }
        if let Some(sql) = input.get("sql").and_then(Value::as_str) {
            let hash = digest(&SHA256, sql.as_bytes());
            known.put("sql_sha256", json!(hex(hash.as_ref())));
        }
        let text = input.to_string();
        let is_whole = text.len() <= MAX_INPUT;
        let input = if is_whole {
            input.clone()
        } else {
            json!(text.chars().take(MAX_INPUT).collect::<String>())
        };
        known.put("input", input);
        known.put("input_truncated", json!(!is_whole));
    }

    /// Notes what a tool came to, where the status of the response does not say it.
    pub fn came_to(&self, outcome: Code) {
        self.known().outcome = Some(outcome);
    }

    /// Writes the line, unless it has been.
    fn finish(&self, outcome: &str, response: Option<&Response>) {
        let mut known = self.known();
        if known.is_written {
            return;
        }
        known.is_written = true;
        let outcome = match known.outcome {
            Some(code) if response.is_some() => code.name(),
            _ => outcome,
        };
        known.put("outcome", json!(outcome));
        known.put(
            "status",
            json!(response.map(|response| response.status().as_u16())),
        );
        let bytes = response.and_then(|response| response.body().size_hint().exact());
        known.put("bytes", json!(bytes));
        let millis = known.began.elapsed().as_secs_f64() * 1e3;
        known.put("duration_ms", json!((millis * 1e3).round() / 1e3));
        let line = Value::Object(std::mem::take(&mut known.fields)).to_string();
        known.log.write(&line);
    }

    // Nothing that holds this lock can panic.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn put(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }
}

/// Writes the line when what answers the attempt is dropped before it has answered.
struct Unfinished(Attempt);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let outcome = if std::thread::panicking() {
            Code::Internal.name()
        } else {
            "cancelled"
        };
        self.0.finish(outcome, None);
    }
}

/// What attempts are written with.
#[derive(Debug, Clone)]
pub struct Auditing {
    /// Where the lines go.
    pub log: AuditLog,
    /// When they happened.
    pub clock: Arc<dyn Clock>,
}

/// Writes a line for every request but those of probes.
pub(crate) async fn audited(
    State(auditing): State<Auditing>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_probe(request.uri().path()) {
        return next.run(request).await;
    }
    let attempt = Attempt::begin((&auditing.log, &*auditing.clock), &request);
    request.extensions_mut().insert(attempt.clone());
    let unfinished = Unfinished(attempt);
    let response = next.run(request).await;
    let outcome = Code::from_http(response.status().as_u16());
    let outcome = match outcome {
        Some(code) => code.name(),
        None if response.status().is_success() => "ok",
        None => Code::Invalid.name(),
    };
    unfinished.0.finish(outcome, Some(&response));
    response
}

/// Writes a line for every request for measurements to be stored that is turned down because of who sends it. Those that are
/// taken are counted by metrics: there are thousands in a second.
pub(crate) async fn audited_refusals(
    State(auditing): State<Auditing>,
    mut request: Request,
    next: Next,
) -> Response {
    let attempt = Attempt::begin((&auditing.log, &*auditing.clock), &request);
    request.extensions_mut().insert(attempt.clone());
    let response = next.run(request).await;
    let refusal = attempt
        .known()
        .outcome
        .or_else(|| is_forbidden(&response).then_some(Code::Forbidden));
    if let Some(code) = refusal {
        attempt.finish(code.name(), Some(&response));
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

/// What is asked every few seconds by whoever runs Echo, and says nothing of anybody.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

fn transport(request: &Request) -> String {
    if !request.uri().path().starts_with("/mcp") {
        return "http".to_owned();
    }
    let version = text(request.headers(), &MCP_VERSION).map(shown);
    version.map_or_else(|| "mcp".to_owned(), |version| format!("mcp {version}"))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
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

/// A text from outside, short and without what nobody sees.
fn shown(text: &str) -> String {
    let plain = text.chars().filter(|c| !is_hidden(*c));
    plain.take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests;
