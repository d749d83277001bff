//! Rank of a job.

use echo_core::units::Nanos;

use crate::straggler::block::{NodeKey, ProcessKey};
use crate::straggler::incident::RankOfJob;
use crate::straggler::measure::LeadFloor;

/// Rank of the job.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) process: ProcessKey,
    pub(super) node: NodeKey,
    /// Largest communicator of the process: its size, and the rank in it.
    pub(super) largest: (usize, u32),
    /// Latest end of a block, and latest instant at which it was known to live, on its own clock,
    /// seconds since the origin.
    latest: f64,
    alive: f64,
    /// Time at which its latest block was received.
    measured: Nanos,
    /// Latest instant at which something was received from it.
    pub(super) heard: Nanos,
    pub(super) lead_floor: LeadFloor,
}

/// Time without a block after which signs of life tell how far a rank is, seconds; agents report
/// every 5 s by default. Before that they may overtake blocks: they come in other messages, or earlier
/// in the same one.
const UNMEASURED_S: f64 = 6.0;

impl Member {
    /// Rank from which nothing was heard.
    pub(super) fn new(process: ProcessKey, node: NodeKey) -> Self {
        Self {
            process,
            node,
            largest: (0, 0),
            latest: f64::NEG_INFINITY,
            alive: f64::NEG_INFINITY,
            measured: Nanos::EARLIEST,
            heard: Nanos::EARLIEST,
            lead_floor: LeadFloor::default(),
        }
    }

    /// Its identity in a job of `n` ranks.
    pub(super) fn identity(&self, n: usize) -> RankOfJob {
        let (size, rank) = self.largest;
        RankOfJob {
            rank: (size == n).then_some(rank),
            process: self.process,
            node: self.node,
        }
    }

    /// Notes that a block was received that ended at `end`, seconds.
    pub(super) fn measure(&mut self, end: f64, received: Nanos) {
        self.latest = self.latest.max(end);
        self.measured = self.measured.max(received);
        self.heard = self.heard.max(received);
    }

    /// Notes that it lived at `at`, seconds.
    pub(super) fn hear(&mut self, at: f64, received: Nanos) {
        self.alive = self.alive.max(at);
        self.heard = self.heard.max(received);
    }

    /// Instant up to which it has reported, as of `now`.
    pub(super) fn reported(&self, now: Nanos) -> f64 {
        if now.millis_since(self.measured) < 1e3 * UNMEASURED_S {
            self.latest
        } else {
            self.latest.max(self.alive)
        }
    }
}

/// Time after the latest report of any rank after which one that reports nothing is gone, seconds.
const GONE_S: f64 = 60.0;

/// Latest instant at which something was received from a rank.
pub(super) fn heard(members: &[Member]) -> Option<Nanos> {
    members.iter().map(|member| member.heard).max()
}

/// Ranks that still report: not those whose place another process has taken.
pub(super) fn living(members: &[Member]) -> impl Iterator<Item = &Member> {
    let latest = heard(members).unwrap_or(Nanos::EARLIEST);
    let is_living = move |member: &&Member| latest.millis_since(member.heard) < 1e3 * GONE_S;
    members.iter().filter(is_living)
}
