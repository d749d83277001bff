//! Input: what travels from one rank about one block of operations.

use echo_core::ids::CommId;
use echo_core::model::event::{SeqRange, Source};
use echo_core::units::Nanos;

/// Identity of a process, unique in the cluster and for its lifetime (node and PID with its start).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey(pub u64);

/// Identity of a node, unique in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(pub u64);

/// Kind of the operations of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Collectives in which every rank waits for every other one: all-reduce, all-gather,
    /// reduce-scatter, all-to-all. Rooted ones (broadcast, reduce) belong into a block only if every
    /// rank was the root in it, because a root does not wait.
    Collective,
    /// Send and receive. Sequence numbers count the transfers between the two ranks, apart from
    /// collectives.
    Transfer {
        /// Rank of the other end within the communicator. `None` if the block has all transfers of this
        /// rank, whatever their other end. Such a block is used for the pace and for leads; its
        /// durations are not compared with those of other ranks.
        peer: Option<u32>,
    },
}

/// Time from enqueueing an operation on the host to its start on the GPU, on the two clocks of one
/// process. Only differences to the smallest lead are used, so the offset of the clocks does not
/// matter; the sender takes a constant of the process away, such as its first lead, so that the
/// numbers stay small (they are kept in single precision). Of host waits, the time from enqueueing an
/// operation to the end of the block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lead {
    /// Sum over the operations of the block, milliseconds.
    pub sum_ms: f64,
    /// Smallest one of the block, milliseconds.
    pub min_ms: f64,
}

/// Communicator as one rank sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Hash of the communicator, equal on all its ranks.
    pub comm: CommId,
    /// Number of ranks in it.
    pub size: u32,
    /// Rank of the process in it.
    pub rank: u32,
}

/// Sums of one rank over one block of operations of one communicator. Blocks are cut by sequence
/// number, best alike on all ranks; blocks that overlap are merged before they are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockSum {
    /// Process of the rank.
    pub process: ProcessKey,
    /// Node that it runs on.
    pub node: NodeKey,
    /// Communicator, and the rank in it.
    pub member: Membership,
    /// Kind of the operations.
    pub operation: Operation,
    /// Origin of the durations. Those of different origins are never compared.
    pub source: Source,
    /// Operations that it covers.
    pub seqs: SeqRange,
    /// Number of them that are summed: not lost ones, nor those with a root that is not each rank by turns.
    pub count: u32,
    /// Sum of the durations, milliseconds.
    pub sum_ms: f64,
    /// Shortest duration, milliseconds.
    pub min_ms: f64,
    /// Leads, if they are known.
    pub lead: Option<Lead>,
    /// End of the last operation, on the clock of the rank's host. Used for the pace and for
    /// placement in time, never to compare ranks.
    pub end: Nanos,
}

impl BlockSum {
    /// Returns true for sends and receives.
    pub(super) const fn is_transfer(&self) -> bool {
        matches!(self.operation, Operation::Transfer { .. })
    }
}

/// Report that a process lives, and how far it is in one communicator. Needed to recognise that
/// nothing completes any more; sent every few seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Process of the rank.
    pub process: ProcessKey,
    /// Communicator, and the rank in it.
    pub member: Membership,
    /// Origin of the durations of its blocks.
    pub source: Source,
    /// Number of operations that it has enqueued in the communicator.
    pub enqueued: u64,
    /// Time of the report, on the clock of the rank's host.
    pub at: Nanos,
}
