//! Senders of health scores.

use echo_core::ids::{JobId, NodeId, Rank, RankInJob};
use echo_core::model::event::Origin;

/// Sender of health scores: a node, or one of its ranks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sender {
    /// Node.
    pub(super) node: NodeId,
    /// Job.
    pub(super) job: Option<JobId>,
    /// Rank, if each rank sends its own scores.
    pub(super) rank: Option<Rank>,
}

impl Sender {
    /// Returns the sender of an event.
    pub(super) fn from_origin(origin: &Origin) -> Self {
        Self {
            node: origin.node.clone(),
            job: origin.job.clone(),
            rank: origin.rank.map(RankInJob::rank),
        }
    }
}
