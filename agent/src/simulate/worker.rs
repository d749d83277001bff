//! Worker: runs some of the agents on one task, each at its own times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tokio::sync::watch;

use crate::job::calls::ORIGIN_NS;
use crate::simulate::agent::{Agent, Timing};
use crate::simulate::clock::Clock;
use crate::simulate::steps::{Steps, Totals};

/// Worker for a share of the agents.
#[derive(Debug)]
pub(super) struct Worker {
    agents: Vec<Option<Agent>>,
    /// Next poll of each agent and its last one, nanoseconds of the sources' clocks.
    due: BinaryHeap<Reverse<(u64, usize, u64)>>,
    steps: Steps,
    timing: Timing,
    clock: Clock,
}

impl Worker {
    /// Creates a worker of these agents, each with the time from the start of the job to its first
    /// batch, nanoseconds.
    pub(super) fn new(
        agents: Vec<(u64, Agent)>,
        steps: Steps,
        timing: Timing,
        clock: Clock,
    ) -> Self {
        let due = agents.iter().zip(0..).map(|((phase_ns, _), index)| {
            let first_ns = ORIGIN_NS + phase_ns % timing.poll_ns();
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

    /// Runs until all agents have ended.
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
                // An agent needs nothing before its previous poll, and the next agent polls later.
                let from_ns = now_ns.saturating_sub(self.timing.poll_ns());
                self.steps.advance(from_ns, now_ns);
                let is_open = agent.poll(&self.steps, now_ns).await;
                if is_open && now_ns < last_ns {
                    *slot = Some(agent);
                    let next_ns = now_ns + self.timing.poll_ns();
                    self.due.push(Reverse((next_ns, index, last_ns)));
                    continue;
                }
            }
            agent.finish(&mut totals).await;
        }
        totals
    }
}
