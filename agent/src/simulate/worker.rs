//! One worker: some of the agents, each in its own rhythm, on one task.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tokio::sync::watch;

use crate::job::calls::{ORIGIN_NS, instant_ns};
use crate::job::steps::{Job, RankStep};
use crate::simulate::agent::{Agent, Timing};
use crate::simulate::clock::Clock;

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
    fn reach(&mut self, from_ns: u64, until_ns: u64) {
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

/// One worker.
#[derive(Debug)]
pub(super) struct Worker {
    agents: Vec<Option<Agent>>,
    /// The next look of each agent, with its last one, nanoseconds of the sources' clocks.
    due: BinaryHeap<Reverse<(u64, usize, u64)>>,
    steps: Steps,
    timing: Timing,
    clock: Clock,
}

impl Worker {
    /// A worker of these agents, each with the time from the begin of the job to its first batch, nanoseconds.
    pub(super) fn new(
        agents: Vec<(u64, Agent)>,
        steps: Steps,
        timing: Timing,
        clock: Clock,
    ) -> Self {
        let due = agents.iter().zip(0..).map(|((phase_ns, _), index)| {
            let first_ns = ORIGIN_NS + phase_ns % timing.look_ns();
            let last_ns = ORIGIN_NS + phase_ns + timing.duration_ns();
            Reverse((first_ns, index, last_ns))
        });
        Self {
            due: due.collect(),
            agents: agents.into_iter().map(|(_, agent)| Some(agent)).collect(),
            steps,
            timing,
            clock,
        }
    }

    /// Works until all agents have ended.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) -> Totals {
        let mut totals = Totals::default();
        while let Some(Reverse((now_ns, index, last_ns))) = self.due.pop() {
            let behind = self.clock.wait_until(now_ns, &mut stopped).await;
            let is_stopped = *stopped.borrow();
            let Some(slot) = self.agents.get_mut(index) else {
                continue;
            };
            let Some(mut agent) = slot.take() else {
                continue;
            };
            if !is_stopped {
                totals.behind = totals.behind.max(behind);
                totals.simulated = Duration::from_nanos(now_ns - ORIGIN_NS);
                // What an agent looks at lies behind its last look, and the next agent looks later.
                let from_ns = now_ns.saturating_sub(self.timing.look_ns());
                self.steps.reach(from_ns, now_ns);
                let goes_on = agent.look(&self.steps, now_ns).await;
                if goes_on && now_ns < last_ns {
                    *slot = Some(agent);
                    let next_ns = now_ns + self.timing.look_ns();
                    self.due.push(Reverse((next_ns, index, last_ns)));
                    continue;
                }
            }
            agent.finish(&mut totals).await;
        }
        totals
    }
}
