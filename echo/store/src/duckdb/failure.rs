//! Error of a group commit.

use crate::StoreError;

/// Engine error that is returned to every request of a group.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// Operation that failed.
    pub(super) doing: &'static str,
    /// Message of the engine.
    pub(super) reason: String,
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        Self::Engine {
            doing: failure.doing,
            reason: failure.reason,
        }
    }
}

/// Converts an engine error to a failure of the operation `doing`.
pub(super) fn failed(doing: &'static str) -> impl Fn(duckdb::Error) -> Failure {
    move |error| Failure {
        doing,
        reason: error.to_string(),
    }
}
