//! Events of GPUs.

use crate::event::Op;

/// Operation on a GPU, timed by the GPU's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuOperation {
    /// Time at which its end was observed, nanoseconds.
    pub ts_ns: u64,
    /// Issuing process.
    pub pid: u32,
    /// Hash of the communicator in NCCL, equal on all its ranks.
    pub comm_id: u64,
    /// Rank in the communicator.
    pub rank: u32,
    /// Number of ranks of the communicator.
    pub nranks: u32,
    /// Number of communicators with this rank and size that the process had joined before.
    pub nth: u32,
    /// Kind of operation.
    pub op: Op,
    /// Its root, if it has one and the source reports it.
    pub root: Option<u32>,
    /// Sequence number among the communicator's collectives, or transfers.
    pub seq: u64,
    /// Sequence number that NCCL counts per function. It does not advance while a graph is
    /// replayed. `None` if the source does not report it.
    pub nccl_seq: Option<u64>,
    /// Size in elements, or for some functions in bytes, as NCCL reports it; 0 if the source does
    /// not report it.
    pub count: u64,
    /// Time at which the host enqueued it, nanoseconds.
    pub host_ns: u64,
    /// Start and stop on the GPU; `None` if not measured.
    pub timer: Option<GpuSpan>,
    /// Operations that the process's profiler plugin had dropped by then; 0 if the source does not
    /// report it.
    pub lost: u64,
}

/// Span of an operation, nanoseconds of the GPU's timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuSpan {
    /// Start of the first channel.
    pub start_ns: u64,
    /// Stop of the last channel.
    pub stop_ns: u64,
}

/// State of a communicator older than the agent, read from the memory of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommState {
    /// Start of the read, nanoseconds.
    pub from_ns: u64,
    /// End of the read, nanoseconds.
    pub ts_ns: u64,
    /// Process id.
    pub pid: u32,
    /// Pointer of the communicator in the process.
    pub pointer: u64,
    /// Hash of the communicator in NCCL.
    pub comm_id: u64,
    /// Rank in the communicator.
    pub rank: u32,
    /// Number of ranks of the communicator.
    pub nranks: u32,
    /// Number of collectives enqueued since it was created.
    pub collectives: u64,
}
