//! Database contents, as reported by commands for a stopped Echo.

use echo_core::ids::{ClusterId, NodeId};
use echo_core::units::{Nanos, Window};

/// Contents of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// Number of events.
    pub events: u64,
    /// Highest event number ever assigned.
    pub last_event: u64,
    /// Time at which the last event was received.
    pub last_received: Option<Nanos>,
}

/// Selection of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Cluster; `None` selects all.
    pub cluster: Option<ClusterId>,
    /// Event time.
    pub window: Window,
}

/// Rows of one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Name of the view: `events`, `op_waits`, `verdict_history` or `lost_time`.
    pub dataset: &'static str,
    /// Cluster.
    pub cluster: String,
    /// Day of event time, UTC, as `2026-11-21`.
    pub day: String,
    /// Number of rows.
    pub rows: u64,
}

/// GPUs of one model on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpus {
    /// Cluster of the node.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Model as reported by the sender, if it did.
    pub model: Option<String>,
    /// Number of ranks with this model.
    pub n_ranks: u64,
}
