//! Where a detector goes on after a restart.

use std::time::Duration;

use crate::model::conclusion::PolicyRecord;

/// How much of what has been judged a detector reads again, so that it knows what is usual. Both limits hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    /// Received time before the last event judged.
    pub span: Duration,
    /// Numbers of events.
    pub events: u64,
}

/// Where a detector goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Events with a number above this one show what is usual; they have been judged.
    pub after: u64,
    /// Events with a number above this one have not been judged.
    pub judged: u64,
    /// The last policy of each cluster.
    pub policies: Vec<PolicyRecord>,
}
