//! Hourly costs in GPU time. Prices are applied when they are read.

use std::sync::Arc;

use crate::ids::{ClusterId, NodeId};
use crate::model::event::Origin;
use crate::units::{GpuTime, Hour, Nanos};

/// Use of the GPUs of one model on one node in one hour.
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

/// Node hour as stored when the hour was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHour {
    /// Computed values.
    pub row: NodeHour,
    /// Number of times that this hour of this cluster was computed with a different result, counted
    /// from 1.
    pub revision: u64,
    /// Time of computation, on Echo's clock.
    pub computed: Nanos,
}

/// Sum of the closed hours of the GPUs of one model on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSum {
    /// Cluster of the node.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Model of the GPUs, when known.
    pub gpu_model: Option<Arc<str>>,
    /// First of the hours.
    pub first: Hour,
    /// Number of hours.
    pub hours: u64,
    /// GPU time in which they reported.
    pub allocated: GpuTime,
    /// GPU time lost to incidents.
    pub lost: GpuTime,
    /// Sum of the ranks of the whole cluster that reported in each hour.
    pub ranks_reporting: u64,
    /// Sum of the ranks that the reporting jobs of the cluster have in each hour.
    pub ranks_expected: u64,
}

/// First and last report of a rank in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportSpan {
    /// Identity of the rank.
    pub origin: Arc<Origin>,
    /// First event time.
    pub first: Nanos,
    /// Last event time.
    pub last: Nanos,
}
