//! Request ids, the body limit and the log of internal errors, shared by all protocols.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::http::HeaderMap;
use echo_core::error::{Code, Coded, chain};
use echo_tools::ToolError;
use serde_json::{Value, json};

/// Longest accepted body, in bytes. The input of a tool is a handful of short fields.
pub(super) const MAX_BODY_BYTES: usize = 64 * 1024;

/// Header with the request id.
pub(super) const REQUEST_ID: &str = "x-request-id";

/// Longest request id accepted from a caller, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// Request id, from the caller if valid.
#[derive(Debug, Clone)]
pub(super) struct RequestId(Arc<str>);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RequestId {
    /// Returns the id as text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Adds the id to an error body.
    pub(super) fn attach_to(&self, mut body: Value) -> Value {
        if let Some(error) = body.pointer_mut("/error").and_then(Value::as_object_mut) {
            error.insert("request_id".to_owned(), json!(*self.0));
        }
        body
    }
}

/// Generator of request ids that differ between processes. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestIds {
    seed: Arc<RandomState>,
    issued: Arc<AtomicU64>,
}

impl RequestIds {
    fn next(&self) -> RequestId {
        let number = self.seed.hash_one(self.issued.fetch_add(1, Relaxed));
        RequestId(Arc::from(format!("{number:016x}")))
    }

    /// Returns the id in the headers, or a new one.
    pub(super) fn for_headers(&self, headers: &HeaderMap) -> RequestId {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let given = given
            .filter(|id| (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.chars().all(plain));
        given.map_or_else(|| self.next(), |id| RequestId(Arc::from(id)))
    }
}

/// Logs an internal error. Errors of the caller are not logged.
pub(super) fn log_internal_error(name: &str, error: &ToolError, id: Option<&RequestId>) {
    if error.code() == Code::Internal {
        tracing::error!(
            tool.name = name,
            request.id = id.map(tracing::field::display),
            error = chain(error),
            "tool {name} failed"
        );
    }
}
