//! How much a store holds, and what it has no room for.

use std::time::Duration;

/// How much a store holds, and how much waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Events that wait to be committed.
    pub queued_events: u64,
    /// Events that may wait; more are refused.
    pub queue_limit: u64,
    /// Size of the database file, bytes.
    pub database_bytes: u64,
    /// Size of the log beside it, bytes.
    pub log_bytes: u64,
    /// Different series.
    pub series: u64,
    /// Most series; events of more are refused.
    pub series_limit: u64,
    /// Different senders.
    pub origins: u64,
    /// Most senders; events of more are refused.
    pub origins_limit: u64,
    /// Different clusters.
    pub clusters: u64,
    /// Most clusters; events of more are refused.
    pub clusters_limit: u64,
    /// How long what waits longest for the writer has waited; nothing when nothing waits.
    pub oldest_wait: Option<Duration>,
    /// Statements in SQL that were told to stop and do not, each of which keeps a place.
    pub stuck_statements: u64,
}

/// What of an event there is no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExceededLimit {
    /// Its series would be one too many.
    Series,
    /// Its sender would be one too many.
    Origin,
    /// Its cluster would be one too many.
    Cluster,
}
