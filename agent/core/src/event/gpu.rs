//! What GPUs did.

use crate::event::Op;

/// One operation on a GPU, by the GPU's own timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuOperation {
    /// When it was known to have ended, nanoseconds.
    pub ts_ns: u64,
    /// Process that issued it.
    pub pid: u32,
    /// The communicator as NCCL names it: a hash that is equal on all its ranks.
    pub comm_id: u64,
    /// The rank in it.
    pub rank: u32,
    /// Its ranks.
    pub nranks: u32,
    /// How many communicators with this rank and size the process had joined before.
    pub nth: u32,
    /// Which operation.
    pub op: Op,
    /// Its number among the communicator's collectives, or transfers.
    pub seq: u64,
    /// NCCL's sequence number among operations of the same function. It does not advance while a graph is replayed. `None` if the
    /// source does not report it.
    pub nccl_seq: Option<u64>,
    /// Size of the operation in elements, or for some functions in bytes, as NCCL reports it; 0 if the source does not report it.
    pub count: u64,
    /// When the host enqueued it, nanoseconds.
    pub host_ns: u64,
    /// When it ran; none for one that has no times.
    pub timer: Option<GpuSpan>,
    /// How many operations the process's plugin had left out by then; 0 where nobody says.
    pub lost: u64,
}

/// From when to when, nanoseconds of a GPU's timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuSpan {
    /// The first channel started.
    pub start_ns: u64,
    /// The last channel stopped.
    pub stop_ns: u64,
}

/// What a communicator older than the agent has in the memory of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommState {
    /// When reading began, nanoseconds.
    pub from_ns: u64,
    /// When reading ended, nanoseconds.
    pub ts_ns: u64,
    /// The process.
    pub pid: u32,
    /// The communicator's pointer there.
    pub pointer: u64,
    /// The communicator as NCCL names it.
    pub comm_id: u64,
    /// The rank in it.
    pub rank: u32,
    /// Its ranks.
    pub nranks: u32,
    /// Collectives that were enqueued since it was made.
    pub collectives: u64,
}
