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
    /// Latest instant that it reported, on its own clock, seconds since the origin.
    pub(super) latest: f64,
    /// Latest instant at which something was received from it.
    pub(super) heard: Nanos,
    pub(super) lead_floor: LeadFloor,
}

impl Member {
    /// Its identity in a job of `n` ranks.
    pub(super) fn identity(&self, n: usize) -> RankOfJob {
        let (size, rank) = self.largest;
        RankOfJob {
            rank: (size == n).then_some(rank),
            process: self.process,
            node: self.node,
        }
    }

    /// Notes that something with the time `at` (seconds) was received.
    pub(super) fn hear(&mut self, at: f64, received: Nanos) {
        self.latest = self.latest.max(at);
        self.heard = self.heard.max(received);
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
