//! Errors of a store.

use echo_core::error::{Code, Coded};

/// Error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the lock of the database.
    #[error("{path} is in use by {holder}; stop that process or choose another --db")]
    Locked {
        /// Database file.
        path: String,
        /// Process, node and start time as the holder wrote them, or the engine's message.
        holder: String,
    },
    /// The schema was written by a later version of Echo.
    #[error(
        "{path} has schema version {found}, this build supports up to {known}; it was not changed; start a newer fleet-echo"
    )]
    Newer {
        /// Database file.
        path: String,
        /// Version in the file.
        found: i64,
        /// Last version known to this build.
        known: i64,
    },
    /// A migration that was applied differs from the one in this build.
    #[error(
        "migration {version} of {path} was applied with different content (checksum {found}); the database is from another build; it was not changed; open it with the build that made it or choose another --db"
    )]
    Changed {
        /// Database file.
        path: String,
        /// Number of the migration.
        version: i64,
        /// Checksum in the ledger.
        found: String,
    },
    /// The file exists but cannot be opened as a database.
    #[error("cannot open {path}: {reason}")]
    Unreadable {
        /// Database file.
        path: String,
        /// Message of the engine.
        reason: String,
    },
    /// The log beside the database file is damaged.
    #[error(
        "cannot open {path}: {reason}; its log is damaged: `fleet-echo repair --drop-wal --db {path}` sets the log aside"
    )]
    DamagedLog {
        /// Database file.
        path: String,
        /// Message of the engine.
        reason: String,
    },
    /// Events are missing that were acknowledged.
    #[error(
        "{missing} events that were acknowledged are not in {path}: its log (.wal) is missing, cut off or from another time; put the right log beside it, restore a backup, or go on without them: `fleet-echo repair --accept-loss --db {path}`"
    )]
    Lost {
        /// Database file.
        path: String,
        /// Number of missing events.
        missing: u64,
    },
    /// The store is closing or its writer has ended.
    #[error("the store is closed")]
    Closed,
    /// A number is NaN or infinite. Nothing of its batch or detector output was stored.
    #[error("{what} of {whose} is {value}, which is not a finite number")]
    NotFinite {
        /// Name of the field.
        what: &'static str,
        /// Metric or incident that it belongs to.
        whose: String,
        /// The number.
        value: f64,
    },
    /// The database cannot be kept on this file system.
    #[error("cannot keep a database at {path}: {reason}; choose another --db")]
    Unsuitable {
        /// Database file.
        path: String,
        /// Reason.
        reason: String,
    },
    /// A copy or an export cannot be written.
    #[error("cannot write {path}: {reason}")]
    Unwritable {
        /// File or folder.
        path: String,
        /// Reason.
        reason: String,
    },
    /// Too little free space on the volume to accept more.
    #[error(
        "the volume of the database is nearly full: {available} bytes are free, the floor is {floor}; retry later"
    )]
    Full {
        /// Bytes that are free.
        available: u64,
        /// Bytes that have to stay free.
        floor: u64,
    },
    /// The engine failed permanently, or its file is lost; only a new process can recover.
    #[error("the database failed permanently and must be opened again: {reason}")]
    Fatal {
        /// Message of the engine, or the fate of the file.
        reason: String,
    },
    /// The queue to the writer is full.
    #[error("the store's queue of events is full")]
    Busy,
    /// The engine failed.
    #[error("the database failed while {doing}: {reason}")]
    Engine {
        /// Operation that failed.
        doing: &'static str,
        /// Message of the engine.
        reason: String,
    },
}

impl Coded for StoreError {
    fn code(&self) -> Code {
        match self {
            Self::NotFinite { .. } => Code::Invalid,
            Self::Busy | Self::Closed | Self::Full { .. } => Code::Busy,
            Self::Locked { .. }
            | Self::Newer { .. }
            | Self::Changed { .. }
            | Self::Unsuitable { .. }
            | Self::Unwritable { .. }
            | Self::Unreadable { .. }
            | Self::DamagedLog { .. }
            | Self::Lost { .. } => Code::Refused,
            Self::Engine { .. } | Self::Fatal { .. } => Code::Internal,
        }
    }
}
