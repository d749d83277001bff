//! Reasons why a store accepts no events at the moment.

use std::fmt;

/// Reason why a store is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotReadyReason {
    /// The engine failed permanently, or its file is lost; only a new process can recover.
    Failed {
        /// Message of the engine, or the fate of the file.
        reason: String,
    },
    /// The store is closing.
    Closed,
    /// Too little free space on the volume.
    Full {
        /// Bytes that are free.
        available: u64,
        /// Bytes that have to stay free.
        floor: u64,
    },
}

impl NotReadyReason {
    /// Machine-readable name of the reason.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "store_failed",
            Self::Closed => "store_closed",
            Self::Full { .. } => "volume_full",
        }
    }
}

impl fmt::Display for NotReadyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { reason } => write!(
                f,
                "the database failed permanently and must be opened again: {reason}"
            ),
            Self::Closed => f.write_str("the store is closed"),
            Self::Full { available, floor } => write!(
                f,
                "the volume of the database is nearly full: {available} bytes are free, the floor is {floor}"
            ),
        }
    }
}
