//! Conditions: problems that are not attributed to a single rank.

use crate::ids::{NodeId, Rank};

/// Problem that is not attributed to a single rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Kind.
    pub kind: ConditionKind,
    /// Affected node; `None` for a condition of a cohort or a job.
    pub node: Option<NodeId>,
    /// Affected ranks: those missing from a hang, those of the overloaded stage. Empty if all are
    /// affected.
    pub ranks: Vec<Rank>,
    /// True if no rank progresses although none is behind the others.
    pub is_standstill: bool,
    /// True if it is known that these ranks are the reason. At a standstill, ranks that do not wait may have
    /// entered the operation of the hang.
    pub is_explained: bool,
    /// Details beyond the kind; may be empty.
    pub detail: String,
}

impl Condition {
    /// Creates a condition that affects all ranks.
    pub const fn new(kind: ConditionKind) -> Self {
        Self {
            kind,
            node: None,
            ranks: Vec::new(),
            is_standstill: false,
            is_explained: true,
            detail: String::new(),
        }
    }
}

/// Kinds of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionKind {
    /// Every rank is slower than before, and none is later than its peers.
    UniformSlowdown,
    /// All ranks of one node are late, at once or by turns.
    LateNode,
    /// Transfers take longer although no rank is late.
    Network,
    /// An operation that some ranks entered and that has not ended for seconds.
    Stall,
    /// An operation that some ranks entered and that never ends.
    Hang,
    /// A process ended by a signal or with an error while its peers were running.
    Crash,
    /// Two nodes report the same rank of a job at the same time.
    IdentityConflict,
    /// A node reports that its own health is bad.
    UnhealthyNode,
}

impl ConditionKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::UniformSlowdown,
        Self::LateNode,
        Self::Network,
        Self::Stall,
        Self::Hang,
        Self::Crash,
        Self::IdentityConflict,
        Self::UnhealthyNode,
    ];

    /// True if an operation does not end, or cannot.
    pub const fn is_hang(self) -> bool {
        matches!(self, Self::Stall | Self::Hang | Self::Crash)
    }

    /// Name in responses and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UniformSlowdown => "uniform_slowdown",
            Self::LateNode => "late_node",
            Self::Network => "network",
            Self::Stall => "stall",
            Self::Hang => "hang",
            Self::Crash => "crash",
            Self::IdentityConflict => "identity_conflict",
            Self::UnhealthyNode => "unhealthy_node",
        }
    }
}
