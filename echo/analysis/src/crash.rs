//! Processes of a job that end by a signal or with an error, before any other one has ended.
//!
//! The others do not end an operation without it, and are then killed by their launcher, or give up. So
//! the first to end is the reason, and by how it ended: a rank that was asked to end (`SIGTERM`), or that
//! returned 0, is none. If most ranks end alike within seconds, the reason is not in one of them.

use echo_core::ids::Rank;
use echo_core::units::Nanos;

use crate::assembly::exit::{End, Exit};
use crate::assembly::progress::Progress;

/// Time within which the agents of all hosts have reported an end, milliseconds: they send every
/// second or two.
const REPORTED_MS: f64 = 5_000.0;

/// Ends within this time are at once, milliseconds: a process with a GPU takes up to seconds to end.
const AT_ONCE_MS: f64 = 3_000.0;

/// Crash of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// The rank that ended first.
    pub first: Rank,
    /// How it ended.
    pub end: End,
    /// Number of ranks that ended like it, at once; 0 unless they are most ranks, so that none is named.
    pub alike: usize,
    /// Other ranks that have ended since, in order.
    pub later: Vec<(Rank, Exit)>,
}

impl Crash {
    /// Returns the rank to name.
    pub fn named(&self) -> Option<Rank> {
        (self.alike == 0).then_some(self.first)
    }
}

/// Returns the crash of a job of several ranks at `now` (arrival time), once all hosts have had the time
/// to report theirs.
pub fn crash(progress: &Progress, now: Nanos) -> Option<Crash> {
    let mut ended: Vec<(Rank, End)> = progress.ended().collect();
    ended.sort_by_key(|(rank, end)| (end.at, *rank));
    let (first, end) = *ended.first()?;
    let n_ranks = progress.ranks().count();
    if n_ranks < 2 || !end.exit.is_failure() || now.millis_since(end.received) < REPORTED_MS {
        return None;
    }
    let is_alike = |(_, other): &&(Rank, End)| {
        other.exit == end.exit && other.at.millis_since(end.at) <= AT_ONCE_MS
    };
    let alike = ended.iter().filter(is_alike).count();
    let later = ended.iter().skip(1).map(|(rank, end)| (*rank, end.exit));
    Some(Crash {
        first,
        end,
        alike: if alike > 1 && alike * 2 > n_ranks {
            alike
        } else {
            0
        },
        later: later.collect(),
    })
}
