//! Processes of a job that end by a signal or with an error before those of the other ranks.
//!
//! The other ranks cannot complete an operation without that process. Their launcher kills them, or they
//! time out. The first end is therefore the cause, unless it was a normal one (exit code 0, `SIGTERM`).
//!
//! No rank is named in three cases ([`Doubt`]): most ranks ended with the same status within seconds, a
//! rank stopped reporting and its end was not reported, or the order of ends on several nodes is not
//! certain.

use echo_core::ids::Rank;
use echo_core::units::Nanos;

use crate::assembly::exit::{End, Exit};
use crate::assembly::progress::Progress;

/// Time within which all living ranks report, and agents have sent the ends that they saw, milliseconds.
const REPORTED_MS: f64 = 6_000.0;

/// Ends within this time have one cause, milliseconds: a process with a GPU takes up to seconds to end.
const AT_ONCE_MS: f64 = 3_000.0;

/// Reports of two nodes are received in order if they are further apart than this, milliseconds.
const IN_ORDER_MS: f64 = 1_000.0;

/// Operations that a rank issues so long after an end show that the job goes on without the process,
/// milliseconds.
const GOES_ON_MS: f64 = 10_000.0;

/// Crash of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// The rank that ended first.
    pub first: Rank,
    /// How it ended.
    pub end: End,
    /// Why it is not named; `None` if it is.
    pub doubt: Option<Doubt>,
    /// Other ranks that have ended since, in order.
    pub later: Vec<(Rank, Exit)>,
}

/// Reason not to name the rank that ended first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// Most ranks, this many, ended with the same status within seconds.
    Alike(usize),
    /// These ranks stopped reporting before, and their ends were not reported.
    Silent(Vec<Rank>),
    /// The end of a rank on another node was received more than a second earlier.
    Order,
}

impl Crash {
    /// Returns the rank to name.
    pub fn named(&self) -> Option<Rank> {
        self.doubt.is_none().then_some(self.first)
    }
}

/// Returns the crash of a job with at least two ranks at `now` (arrival time), 6 s after the first report
/// of an end; `None` if the first end was a normal one, or if the other ranks still issue operations.
pub fn crash(progress: &Progress, now: Nanos) -> Option<Crash> {
    let mut ended: Vec<(Rank, End)> = progress.ended().collect();
    ended.sort_by_key(|(rank, end)| (end.at, *rank));
    let (first, end) = *ended.first()?;
    let received = ended.iter().map(|(_, end)| end.received).min()?;
    let n_ranks = progress.ranks().count();
    let is_settled = now.millis_since(received) >= REPORTED_MS;
    if n_ranks < 2 || !end.exit.is_failure() || !is_settled || goes_on(progress, received) {
        return None;
    }
    let later = ended.iter().skip(1).map(|(rank, end)| (*rank, end.exit));
    Some(Crash {
        first,
        end,
        doubt: doubt(progress, &ended, n_ranks),
        later: later.collect(),
    })
}

/// Returns whether ranks issue operations though others have ended.
fn goes_on(progress: &Progress, received: Nanos) -> bool {
    let positions = progress.comms().flat_map(|(_, ranks)| ranks);
    let mut living = positions.filter(|(rank, _)| !progress.has_ended(**rank));
    living.any(|(_, own)| own.advanced.millis_since(received) > GOES_ON_MS)
}

/// Returns why the first of the ends, which are in order, may not be the reason for the others.
fn doubt(progress: &Progress, ended: &[(Rank, End)], n_ranks: usize) -> Option<Doubt> {
    let (first, end) = *ended.first()?;
    let is_alike = |(_, other): &&(Rank, End)| {
        other.exit == end.exit && other.at.millis_since(end.at) <= AT_ONCE_MS
    };
    let alike = ended.iter().filter(is_alike).count();
    if alike > 1 && alike * 2 > n_ranks {
        return Some(Doubt::Alike(alike));
    }
    let is_silent = |rank: &Rank| {
        let seen = progress.alive(*rank);
        !progress.has_ended(*rank) && seen.is_none_or(|seen| seen < end.received)
    };
    let silent: Vec<Rank> = progress.ranks().filter(is_silent).collect();
    if !silent.is_empty() {
        return Some(Doubt::Silent(silent));
    }
    let node = |rank: Rank| progress.origin(rank).map(|origin| &origin.node);
    let was_before = |(other, at): &(Rank, End)| {
        node(*other) != node(first) && end.received.millis_since(at.received) > IN_ORDER_MS
    };
    ended.iter().any(was_before).then_some(Doubt::Order)
}
