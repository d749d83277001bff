//! Usage of a store and its limits.

use std::time::Duration;

/// Usage of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Events in the queue.
    pub queued_events: u64,
    /// Maximum number of queued events.
    pub queue_limit: u64,
    /// Size of the database file, bytes.
    pub database_bytes: u64,
    /// Size of the log beside it, bytes.
    pub log_bytes: u64,
    /// Number of series.
    pub series: u64,
    /// Maximum number of series.
    pub series_limit: u64,
    /// Number of origins.
    pub origins: u64,
    /// Maximum number of origins.
    pub origins_limit: u64,
    /// Number of clusters.
    pub clusters: u64,
    /// Maximum number of clusters.
    pub clusters_limit: u64,
    /// Waiting time of the oldest request to the writer; `None` if there are none.
    pub oldest_wait: Option<Duration>,
}

/// Entry limit that an event would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExceededLimit {
    /// Number of series.
    Series,
    /// Number of origins.
    Origin,
    /// Number of clusters.
    Cluster,
}
