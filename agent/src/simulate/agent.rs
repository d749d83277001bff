//! One simulated agent: a real host with a real delivery, fed with the calls of simulated ranks.

use std::sync::Arc;
use std::time::Duration;

use fleet_agent_core::batch::Batch;
use fleet_agent_core::event::Event;
use fleet_agent_core::host::Host;
use fleet_agent_core::pipeline::Ending;
use fleet_agent_export::delivery::Outbox;

use crate::config::SimulateArgs;
use crate::job::calls::{Caller, ORIGIN_NS};
use crate::simulate::counters::{Closed, Counters};
use crate::simulate::steps::{Steps, Totals};

/// Longest pause between two looks of an agent at its processes.
const LOOK: Duration = Duration::from_millis(500);

/// When agents look and send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    look_ns: u64,
    looks_per_flush: u64,
    looks: u64,
    is_burst: bool,
}

impl Timing {
    /// The rhythm that the flags ask for.
    pub(super) fn new(args: &SimulateArgs) -> Self {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let interval_ns = nanos(args.interval);
        let looks_per_flush = interval_ns.div_ceil(nanos(LOOK)).max(1);
        let look_ns = (interval_ns / looks_per_flush).max(1);
        Self {
            look_ns,
            looks_per_flush,
            looks: nanos(args.duration).div_ceil(look_ns),
            is_burst: args.burst,
        }
    }

    /// From one look of an agent to the next, nanoseconds.
    pub(super) fn look_ns(self) -> u64 {
        self.look_ns
    }

    /// From one batch of an agent to the next, nanoseconds.
    pub(super) fn flush_every_ns(self) -> u64 {
        self.look_ns.saturating_mul(self.looks_per_flush)
    }

    /// How long every agent looks, nanoseconds.
    pub(super) fn duration_ns(self) -> u64 {
        self.look_ns.saturating_mul(self.looks)
    }

    /// From the begin of the job to an agent's first batch, nanoseconds.
    ///
    /// Multiples of the golden ratio fill an interval evenly, however many there are, and neighbours lie apart.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of an interval needs no nanoseconds"
    )]
    pub(super) fn phase_ns(self, agent: u32) -> u64 {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        if self.is_burst {
            return 0;
        }
        let share = (f64::from(agent) * GOLDEN).fract();
        (share * self.flush_every_ns() as f64) as u64
    }
}

/// One agent.
#[derive(Debug)]
pub(super) struct Agent {
    host: Host,
    outbox: Outbox,
    callers: Vec<Caller>,
    closed: Arc<Closed>,
    counters: Arc<Counters>,
    looked_ns: u64,
    has_ended: bool,
}

impl Agent {
    /// An agent of these ranks, before its first look.
    pub(super) fn new(
        (host, outbox): (Host, Outbox),
        callers: Vec<Caller>,
        (closed, counters): (Arc<Closed>, Arc<Counters>),
    ) -> Self {
        Self {
            host,
            outbox,
            callers,
            closed,
            counters,
            looked_ns: 0,
            has_ended: false,
        }
    }

    /// Takes what the ranks have called since the last look; false when nobody takes the agent's points any more.
    pub(super) async fn look(&mut self, steps: &Steps, now_ns: u64) -> bool {
        self.counters.reached(now_ns.saturating_sub(ORIGIN_NS));
        if let Some(policy) = self.outbox.new_policy() {
            self.host.apply_policy(&policy);
        }
        let since_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        let mut batches = Vec::new();
        for caller in &self.callers {
            let joins = caller.joins().filter(|_| since_ns < ORIGIN_NS);
            let calls = steps.of(caller.rank()).flat_map(|step| caller.step(step));
            let new = calls.filter(|call| since_ns < call.ts_ns && call.ts_ns <= now_ns);
            batches.extend(
                joins
                    .chain(new)
                    .filter_map(|call| self.host.on_event(&Event::Call(call))),
            );
        }
        batches.extend(self.host.tick(now_ns));
        for batch in batches {
            self.send(batch).await;
        }
        if let Some(verdicts) = self.host.take_verdicts() {
            self.outbox.tell(verdicts);
        }
        !self.has_ended
    }

    /// Ends the agent in the middle of its job, and says what it has seen.
    pub(super) async fn finish(mut self, totals: &mut Totals) {
        let (last, verdicts) = self.host.finish(Ending::Cut);
        if let Some(verdicts) = verdicts {
            self.outbox.tell(verdicts);
        }
        if let Some(batch) = last {
            self.send(batch).await;
        }
        totals.blocks += self.host.totals().blocks;
        totals.points_dropped += self.outbox.dropped();
        totals.batches_dropped += self.outbox.batches_dropped();
        totals.verdicts_dropped += self.outbox.verdicts_dropped();
    }

    async fn send(&mut self, batch: Batch) {
        let (number, dropped) = (batch.number, self.outbox.dropped());
        self.counters.made(batch.n_points() as u64);
        self.closed.note(number);
        self.has_ended |= !self.outbox.send(batch).await;
        if self.outbox.dropped() > dropped {
            let _unused = self.closed.forget(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_NS: u64 = 5_000_000_000;

    fn timing(is_burst: bool) -> Timing {
        Timing {
            look_ns: INTERVAL_NS / 10,
            looks_per_flush: 10,
            looks: 100,
            is_burst,
        }
    }

    #[test]
    fn agents_send_spread_over_the_interval() {
        let mut phases: Vec<u64> = (0..1280)
            .map(|agent| timing(false).phase_ns(agent))
            .collect();
        phases.sort_unstable();
        assert!(phases.iter().all(|phase| *phase < INTERVAL_NS));
        let gaps = phases.windows(2).map(|pair| pair[1] - pair[0]);
        let (mean, largest) = (INTERVAL_NS / 1280, gaps.max().unwrap());
        assert!(largest < 3 * mean, "{largest}");
    }

    #[test]
    fn in_a_burst_all_agents_send_in_the_same_moment() {
        assert!((0..1280).all(|agent| timing(true).phase_ns(agent) == 0));
    }
}
