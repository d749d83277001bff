//! Kernels of collectives, where the recording has the GPU's own times.

use fleet_agent_core::event::{GpuOperation, GpuSpan, Op};
use fleet_agent_core::signal::CommId;

use crate::trace::timeline::RankTimeline;

/// Kernel of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Communicator.
    pub(super) comm: CommId,
    /// Number of the collective in the communicator.
    pub(super) seq: u64,
    /// Kind of operation.
    pub(super) op: Op,
    /// Start, nanoseconds of the host's clock.
    pub(super) start_ns: u64,
    /// End, nanoseconds of the host's clock.
    pub(super) end_ns: u64,
}

/// Returns the kernels of a rank in order of start.
pub(super) fn kernels(rank: &RankTimeline) -> Vec<Kernel> {
    let timed = rank
        .gpu
        .iter()
        .filter(|operation| operation.op.is_collective());
    let timed = timed.filter_map(|operation| Some((operation, operation.timer?)));
    // The GPU's timer has its own zero. An end is observed soon after it, never before it.
    let ahead = timed
        .clone()
        .map(|(operation, span)| i128::from(operation.ts_ns) - i128::from(span.stop_ns));
    let Some(ahead_ns) = ahead.min() else {
        return Vec::new();
    };
    let on_host = |ns: u64| u64::try_from(i128::from(ns) + ahead_ns).unwrap_or(0);
    let kernel = |(operation, span): (&GpuOperation, GpuSpan)| Kernel {
        comm: CommId::new(operation.comm_id),
        seq: operation.seq,
        op: operation.op,
        start_ns: on_host(span.start_ns),
        end_ns: on_host(span.stop_ns),
    };
    let mut kernels: Vec<Kernel> = timed.map(kernel).collect();
    kernels.sort_by_key(|kernel| kernel.start_ns);
    kernels
}
