//! Steps of the simulated job that agents still need, and totals of the agents.

use std::collections::VecDeque;
use std::time::Duration;

use crate::job::calls::{ORIGIN_NS, instant_ns};
use crate::job::steps::{Job, RankStep};

/// Totals over agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Totals {
    /// Blocks closed.
    pub(super) blocks: u64,
    /// Points that did not fit in their agent's queue.
    pub(super) points_dropped: u64,
    /// Batches of those points.
    pub(super) batches_dropped: u64,
    /// Verdicts that did not fit in their agent's queue.
    pub(super) verdicts_dropped: u64,
    /// Time that the job has reached.
    pub(super) simulated: Duration,
    /// Maximum delay of a poll.
    pub(super) behind: Duration,
}

impl Totals {
    /// Adds the totals of another worker.
    pub(super) fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.points_dropped += other.points_dropped;
        self.batches_dropped += other.batches_dropped;
        self.verdicts_dropped += other.verdicts_dropped;
        self.simulated = self.simulated.max(other.simulated);
        self.behind = self.behind.max(other.behind);
    }
}

/// Steps of the job that agents still need.
#[derive(Debug)]
pub(super) struct Steps {
    job: Job,
    window: VecDeque<Step>,
    /// Earliest begin of the first step that is not computed yet, nanoseconds.
    known_until_ns: u64,
}

#[derive(Debug)]
struct Step {
    ranks: Vec<RankStep>,
    ends_ns: u64,
}

impl Steps {
    /// Creates an empty window.
    pub(super) fn new(job: Job) -> Self {
        Self {
            job,
            window: VecDeque::new(),
            known_until_ns: ORIGIN_NS,
        }
    }

    /// Returns the steps of a rank.
    pub(super) fn for_rank(&self, rank: u32) -> impl Iterator<Item = &RankStep> {
        let steps = self.window.iter();
        steps.filter_map(move |step| step.ranks.get(rank as usize))
    }

    /// Computes the steps up to `until_ns` and drops those that ended before `from_ns`.
    pub(super) fn advance(&mut self, from_ns: u64, until_ns: u64) {
        while self.known_until_ns <= until_ns {
            let ranks = self.job.next_step().to_vec();
            let ends = || ranks.iter().map(|rank| instant_ns(rank.end_ms));
            self.known_until_ns = ends().min().unwrap_or(u64::MAX);
            let ends_ns = ends().max().unwrap_or(u64::MAX);
            self.window.push_back(Step { ranks, ends_ns });
        }
        while self
            .window
            .front()
            .is_some_and(|step| step.ends_ns < from_ns)
        {
            self.window.pop_front();
        }
    }
}
