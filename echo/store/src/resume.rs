//! State with which a detector resumes after a restart.

use std::time::Duration;

use echo_core::model::detector_output::PolicyRecord;
use echo_core::units::Nanos;

/// Amount of judged events that a detector reads again to learn what is usual. Both limits apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    /// Received time before the last judged event.
    pub span: Duration,
    /// Number of events.
    pub events: u64,
}

impl WarmUp {
    /// Period before the window in which an event ends the search for its beginning: a clock that
    /// was wrong for a while wrote other times.
    pub const EDGE: Duration = Duration::from_hours(24);

    /// Returns true if `received` lies just before the warm-up window that ends with an event
    /// received at `last`.
    pub fn is_before_window(self, received: Nanos, last: Nanos) -> bool {
        let begin = last.before(self.span);
        received < begin && received >= begin.before(Self::EDGE)
    }
}

/// State with which a detector resumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Events with a number above this one are read again to learn what is usual; they have been
    /// judged.
    pub after: u64,
    /// Events with a number above this one have not been judged.
    pub judged: u64,
    /// The last policy of each cluster.
    pub policies: Vec<PolicyRecord>,
}
