//! Reasons why a slow cohort has no verdict.

/// Reason why a slow cohort has no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// Too few of the expected ranks report.
    Coverage,
    /// The job neither synchronises nor shares completions.
    NoSignal,
    /// The rank is the only one of its role.
    NoPeers,
    /// A rank is late, but not beyond the usual scatter.
    NotSignificant,
    /// Ranks are late, but each waits as long as its peers do.
    NoRoot,
    /// The job lost nearly all of the time in one pause.
    OnePause,
}

impl Doubt {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::Coverage,
        Self::NoSignal,
        Self::NoPeers,
        Self::NotSignificant,
        Self::NoRoot,
        Self::OnePause,
    ];

    /// Text of the reason, for incidents.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Coverage => "too few of the job's ranks report to compare them",
            Self::NoSignal => {
                "the job never blocks in a synchronisation, so host signals cannot show which rank is late"
            }
            Self::NoPeers => "no other rank does the same work, so it has no peers to compare with",
            Self::NotSignificant => {
                "a rank is late by as much as the cohort lost, but not beyond the usual scatter of its peers"
            }
            Self::NoRoot => {
                "ranks are late, but each of them waits for others as long as its peers do"
            }
            Self::OnePause => {
                "nearly all of the loss was one pause, which does not show which rank caused it"
            }
        }
    }
}
