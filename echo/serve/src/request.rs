//! What every request has, whatever protocol it speaks: a number, a size that is taken, and a line in the log when Echo is to
//! blame.

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

/// Header with the number of a request.
pub(super) const REQUEST_ID: &str = "x-request-id";

/// Longest number that a caller may give its request, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// The number of a request, the caller's own where it gave one.
#[derive(Debug, Clone)]
pub(super) struct RequestId(Arc<str>);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RequestId {
    /// The number as text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The error body with the number in it.
    pub(super) fn on(&self, mut body: Value) -> Value {
        if let Some(error) = body.pointer_mut("/error").and_then(Value::as_object_mut) {
            error.insert("request_id".to_owned(), json!(*self.0));
        }
        body
    }
}

/// Makes numbers of requests that differ between processes, too. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestIds {
    seed: Arc<RandomState>,
    made: Arc<AtomicU64>,
}

impl RequestIds {
    fn next(&self) -> RequestId {
        let number = self.seed.hash_one(self.made.fetch_add(1, Relaxed));
        RequestId(Arc::from(format!("{number:016x}")))
    }

    /// The number that the headers give, or a new one.
    pub(super) fn of(&self, headers: &HeaderMap) -> RequestId {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let given = given
            .filter(|id| (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.chars().all(plain));
        given.map_or_else(|| self.next(), |id| RequestId(Arc::from(id)))
    }
}

/// A defect is logged once, here; what the caller did wrong is the caller's to know.
pub(super) fn note(name: &str, error: &ToolError, id: Option<&RequestId>) {
    if error.code() == Code::Internal {
        tracing::error!(
            tool.name = name,
            request.id = id.map(tracing::field::display),
            error = chain(error),
            "tool {name} gave no answer"
        );
    }
}
