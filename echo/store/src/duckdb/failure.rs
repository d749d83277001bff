//! Why a group was not stored.

use crate::StoreError;

/// An engine error that everybody in a group gets.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// What was being done.
    pub(super) doing: &'static str,
    /// What the engine said.
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

/// Makes an engine error a failure of what was being done.
pub(super) fn failed(doing: &'static str) -> impl Fn(duckdb::Error) -> Failure {
    move |error| Failure {
        doing,
        reason: error.to_string(),
    }
}
