//! Errors of the engine as errors of the store.

use std::path::Path;

use crate::StoreError;

/// What the engine answers.
pub(super) type EngineResult<T> = Result<T, ::duckdb::Error>;

/// Makes an error of the engine one of the store.
pub(super) fn engine(doing: &'static str) -> impl Fn(::duckdb::Error) -> StoreError {
    move |error| StoreError::Engine {
        doing,
        reason: error.to_string(),
    }
}

/// The error about a file that is no database of Echo.
pub(super) fn unreadable(path: &Path, reason: String) -> StoreError {
    StoreError::Unreadable {
        path: path.display().to_string(),
        reason,
    }
}
