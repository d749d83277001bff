//! The steps of a simulated job that agents still look at, and what agents have done.

use std::collections::VecDeque;
use std::time::Duration;

use crate::job::calls::{ORIGIN_NS, instant_ns};
use crate::job::steps::{Job, RankStep};

/// What agents have done, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Totals {
    /// Blocks closed.
    pub(super) blocks: u64,
    /// Points that found no room in their agent's queue.
    pub(super) points_dropped: u64,
    /// The batches that they were in.
    pub(super) batches_dropped: u64,
    /// The same of verdicts.
    pub(super) verdicts_dropped: u64,
    /// How far the job came.
    pub(super) simulated: Duration,
    /// How late a look was at most.
    pub(super) behind: Duration,
}

impl Totals {
    /// Adds those of another worker.
    pub(super) fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.points_dropped += other.points_dropped;
        self.batches_dropped += other.batches_dropped;
        self.verdicts_dropped += other.verdicts_dropped;
        self.simulated = self.simulated.max(other.simulated);
        self.behind = self.behind.max(other.behind);
    }
}

/// The steps of the job that agents still look at.
#[derive(Debug)]
pub(super) struct Steps {
    job: Job,
    window: VecDeque<Step>,
    /// The first rank to begin the step that is not known yet does so here, nanoseconds.
    known_until_ns: u64,
}

#[derive(Debug)]
struct Step {
    ranks: Vec<RankStep>,
    over_ns: u64,
}

impl Steps {
    /// None as yet.
    pub(super) fn new(job: Job) -> Self {
        Self {
            job,
            window: VecDeque::new(),
            known_until_ns: ORIGIN_NS,
        }
    }

    /// A rank's part in them.
    pub(super) fn of(&self, rank: u32) -> impl Iterator<Item = &RankStep> {
        let steps = self.window.iter();
        steps.filter_map(move |step| step.ranks.get(rank as usize))
    }

    /// Learns everything up to `until_ns` and forgets what was over at `from_ns`.
    pub(super) fn reach(&mut self, from_ns: u64, until_ns: u64) {
        while self.known_until_ns <= until_ns {
            let ranks = self.job.next_step().to_vec();
            let ends = || ranks.iter().map(|rank| instant_ns(rank.end_ms));
            self.known_until_ns = ends().min().unwrap_or(u64::MAX);
            let over_ns = ends().max().unwrap_or(u64::MAX);
            self.window.push_back(Step { ranks, over_ns });
        }
        while self
            .window
            .front()
            .is_some_and(|step| step.over_ns < from_ns)
        {
            self.window.pop_front();
        }
    }
}
