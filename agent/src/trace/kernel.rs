//! Collectives as kernels on the GPU.
//!
//! Where the recording has the GPU's own times, these are the kernels' times. Otherwise they are
//! bounds seen by the host: from the call until the next collective is issued, the last one until
//! the wait for the GPU returns.

use fleet_agent_core::event::{GpuOperation, GpuSpan};
use fleet_agent_core::signal::CommId;

use crate::trace::timeline::{Collective, CommOperation, RankTimeline};

/// Kernel of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Call that issued it; `None` if only the GPU reported it.
    pub(super) issued: Option<Collective>,
    /// Start, nanoseconds.
    pub(super) start_ns: u64,
    /// End, nanoseconds.
    pub(super) end_ns: u64,
    /// Its operation.
    pub(super) operation: CommOperation,
    /// Whether the GPU measured its times.
    pub(super) is_device: bool,
}

/// Returns the kernels of a rank in order of start.
pub(super) fn kernels(rank: &RankTimeline) -> Vec<Kernel> {
    let mut kernels = device_kernels(rank);
    if kernels.is_empty() {
        kernels = host_kernels(rank);
    }
    kernels.sort_by_key(|kernel| kernel.start_ns);
    kernels
}

fn device_kernels(rank: &RankTimeline) -> Vec<Kernel> {
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
        issued: None,
        start_ns: on_host(span.start_ns),
        end_ns: on_host(span.stop_ns),
        operation: CommOperation {
            comm: CommId::new(operation.comm_id),
            comm_rank: operation.rank,
            comm_size: operation.nranks,
            seq: operation.seq,
            op: operation.op,
            count: operation.count,
            datatype: u32::MAX,
        },
        is_device: true,
    };
    timed.map(kernel).collect()
}

fn host_kernels(rank: &RankTimeline) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    let mut later = rank.collectives.iter().skip(1);
    for collective in &rank.collectives {
        let next_ns = later.next().map(|next| next.call.start_ns);
        let completed_ns = collective.completed_ns;
        let Some(end_ns) = next_ns.into_iter().chain(completed_ns).min() else {
            continue;
        };
        kernels.push(Kernel {
            issued: Some(*collective),
            start_ns: collective.call.start_ns,
            end_ns,
            operation: collective.operation,
            is_device: false,
        });
    }
    kernels
}
