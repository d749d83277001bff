//! Where a detector goes on after a restart.

use std::time::Duration;

use echo_core::model::detector_output::PolicyRecord;
use echo_core::units::Nanos;

/// How much of what has been judged a detector reads again, so that it knows what is usual. Both limits hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    /// Received time before the last event judged.
    pub span: Duration,
    /// Numbers of events.
    pub events: u64,
}

impl WarmUp {
    /// How long before its beginning events end the stretch: a clock that was wrong for a while wrote other times.
    pub const EDGE: Duration = Duration::from_hours(24);

    /// Whether what was received then lies just before the stretch that ends with an event received at `last`.
    pub fn is_before_window(self, received: Nanos, last: Nanos) -> bool {
        let begin = last.before(self.span);
        received < begin && received >= begin.before(Self::EDGE)
    }
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
