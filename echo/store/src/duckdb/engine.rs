//! Conversion of engine errors to store errors.

use std::path::Path;

use crate::StoreError;

/// Result of the engine.
pub(super) type EngineResult<T> = Result<T, ::duckdb::Error>;

/// Converts an error of the engine to one of the store.
pub(super) fn engine(doing: &'static str) -> impl Fn(::duckdb::Error) -> StoreError {
    move |error| StoreError::Engine {
        doing,
        reason: error.to_string(),
    }
}

/// Error for a file that is not a database of Echo.
pub(super) fn unreadable(path: &Path, reason: String) -> StoreError {
    StoreError::Unreadable {
        path: path.display().to_string(),
        reason,
    }
}
