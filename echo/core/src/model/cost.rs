//! Costs by the hour, in GPU time. Prices are put on them when they are read.

use std::sync::Arc;

use crate::ids::{ClusterId, NodeId};
use crate::model::event::Origin;
use crate::units::{GpuTime, Hour, Nanos};

/// What the GPUs of one model on one node did in one hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHour {
    /// The hour.
    pub hour: Hour,
    /// Cluster of the node.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Model of the GPUs, when known.
    pub gpu_model: Option<Arc<str>>,
    /// Ranks on these GPUs that reported.
    pub gpus: u32,
    /// GPU time in which they reported.
    pub allocated: GpuTime,
    /// GPU time lost to incidents, never negative.
    pub lost: GpuTime,
    /// Ranks of the whole cluster that reported in the hour.
    pub ranks_reporting: u32,
    /// Ranks that the reporting jobs of the cluster have.
    pub ranks_expected: u32,
}

/// The same as it was stored when the hour was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHour {
    /// What was computed.
    pub row: NodeHour,
    /// How often this hour of this cluster has been computed with another result, counted from 1.
    pub revision: u64,
    /// When it was computed, on the clock of Echo.
    pub computed: Nanos,
}

/// When a rank reported in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Who.
    pub origin: Arc<Origin>,
    /// First event time.
    pub first: Nanos,
    /// Last event time.
    pub last: Nanos,
}
