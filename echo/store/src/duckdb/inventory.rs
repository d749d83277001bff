//! What commands for a stopped Echo tell of a database.

use echo_core::ids::{ClusterId, NodeId};
use echo_core::units::{Nanos, Window};

/// What is in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// Events.
    pub events: u64,
    /// Number of the last event that was ever given.
    pub last_event: u64,
    /// When the last event was received.
    pub last_received: Option<Nanos>,
}

/// Which rows are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Cluster; all when absent.
    pub cluster: Option<ClusterId>,
    /// Event time.
    pub window: Window,
}

/// Rows of one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// What they are: `events`, `op_waits`, `verdict_history` or `lost_time`, as the view that they come from.
    pub dataset: &'static str,
    /// Cluster.
    pub cluster: String,
    /// Day of event time, UTC, as `2026-11-21`.
    pub day: String,
    /// Number of rows.
    pub rows: u64,
}

/// The GPUs of one model on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpus {
    /// Cluster of the node.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Model as the sender wrote it, when it did.
    pub model: Option<String>,
    /// How many ranks have one.
    pub n_ranks: u64,
}
