//! Errors of a lake.

use std::io;
use std::path::PathBuf;

use echo_store::StoreError;
use echo_store::duckdb::slices::CopyError;

/// Error of a lake.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// A setting is invalid.
    #[error("{0}")]
    Setting(String),
    /// A file cannot be read or created.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The engine, the catalog or the object store failed.
    #[error("lake: {doing} failed: {reason}")]
    Engine {
        /// Operation.
        doing: &'static str,
        /// Message, without credentials.
        reason: String,
    },
    /// The database is not the one that the slices in the lake came from.
    #[error(
        "the lake has events of this database up to number {in_lake}, and the file holds others or none with that number: it is an older copy of the file that was written to the lake; start with an empty --db, or continue with the newest file"
    )]
    Diverged {
        /// Last event of the last slice.
        in_lake: u64,
    },
    /// Rows cannot be read from the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<CopyError<Self>> for LakeError {
    fn from(error: CopyError<Self>) -> Self {
        match error {
            CopyError::Read(error) => Self::Store(error),
            CopyError::Write(error) => error,
        }
    }
}
