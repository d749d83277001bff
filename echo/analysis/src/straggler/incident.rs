//! Output: incidents with what they cost.

use echo_core::units::Nanos;

use crate::straggler::block::{NodeKey, ProcessKey};
use crate::straggler::class::Class;

/// Rank of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankOfJob {
    /// Rank in the communicator that holds the whole job; `None` if there is none.
    pub rank: Option<u32>,
    /// Its process.
    pub process: ProcessKey,
    /// Its node.
    pub node: NodeKey,
}

/// What an incident is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The pace fell, and the waiting for this rank explains it.
    Rank(RankOfJob),
    /// The pace fell, and the waiting for all ranks of this node explains it.
    Node(NodeKey, Vec<RankOfJob>),
    /// Almost all waiting is for this rank, but there is no healthy past to compare with. The cost
    /// is a lower bound.
    LateWithoutPast(RankOfJob),
    /// The pace fell, and no rank explains it.
    UniformSlowdown,
    /// Nothing completes any more. Lists the ranks that have not enqueued what others have; empty
    /// if that is unknown.
    Stall(Vec<RankOfJob>),
}

/// Stretch of lost time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    /// Beginning.
    pub from: Nanos,
    /// End.
    pub to: Nanos,
    /// GPU time lost in it, seconds: ranks x time x (1 - usual / current seconds per operation).
    pub lost_gpu_s: f64,
    /// Share of it that each peer waited beyond the usual, 0 to 1; the rest of the waiting was overlapped
    /// with work.
    pub waited: f64,
}

/// Incident of a job: one finding with all its pieces. A later state with the same number replaces
/// an earlier one.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    /// Number within the job, from 0.
    pub number: u64,
    /// Subject.
    pub finding: Finding,
    /// Class of the cause, by evidence.
    pub class: Class,
    /// Beginning of the first lost time.
    pub since: Nanos,
    /// Instant at which the evidence sufficed.
    pub known: Nanos,
    /// End of the last lost time so far.
    pub until: Nanos,
    /// False while it lasts. An incident ends after a time without evidence.
    pub is_closed: bool,
    /// GPU time lost, seconds. A lower bound for [`Finding::LateWithoutPast`].
    pub lost_gpu_s: f64,
    /// Median share of the time that was lost, 0 to 1.
    pub loss: f64,
    /// Time that each peer waits for it beyond the usual, milliseconds per second, median.
    pub waited_ms_per_s: f64,
    /// Time by which its host enqueues operations later than those of the others, beyond the usual,
    /// milliseconds, median; 0 unless that names it.
    pub late_ms: f64,
    /// Lost time in pieces, oldest first; the oldest are merged if there are very many.
    pub pieces: Vec<Piece>,
}
