//! Simulated agent: a real host with a real delivery, fed with the calls of simulated ranks.

use std::sync::Arc;
use std::time::Duration;

use fleet_agent_core::batch::Batch;
use fleet_agent_core::event::Event;
use fleet_agent_core::host::Host;
use fleet_agent_core::pipeline::Ending;
use fleet_agent_export::delivery::Outbox;

use crate::config::SimulateArgs;
use crate::job::calls::{ORIGIN_NS, SimulatedRank};
use crate::simulate::counters::{Counters, UnackedBatches};
use crate::simulate::steps::{Steps, Totals};

/// Longest interval between two polls of an agent.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Times at which agents poll and send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    poll_ns: u64,
    polls_per_flush: u64,
    n_polls: u64,
    is_burst: bool,
}

impl Timing {
    /// Timing for the flags.
    pub(super) fn new(args: &SimulateArgs) -> Self {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let interval_ns = nanos(args.interval);
        let polls_per_flush = interval_ns.div_ceil(nanos(MAX_POLL_INTERVAL)).max(1);
        let poll_ns = (interval_ns / polls_per_flush).max(1);
        Self {
            poll_ns,
            polls_per_flush,
            n_polls: nanos(args.duration).div_ceil(poll_ns),
            is_burst: args.burst,
        }
    }

    /// Returns the interval between two polls of an agent, nanoseconds.
    pub(super) fn poll_ns(self) -> u64 {
        self.poll_ns
    }

    /// Returns the interval between two batches of an agent, nanoseconds.
    pub(super) fn flush_every_ns(self) -> u64 {
        self.poll_ns.saturating_mul(self.polls_per_flush)
    }

    /// Returns the time for which every agent polls, nanoseconds.
    pub(super) fn duration_ns(self) -> u64 {
        self.poll_ns.saturating_mul(self.n_polls)
    }

    /// Returns the time from the start of the job to an agent's first batch, nanoseconds.
    ///
    /// Multiples of the golden ratio fill an interval evenly, whatever their number, and keep
    /// neighbors apart.
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

/// Simulated agent.
#[derive(Debug)]
pub(super) struct Agent {
    host: Host,
    outbox: Outbox,
    callers: Vec<SimulatedRank>,
    unacked: Arc<UnackedBatches>,
    counters: Arc<Counters>,
    last_poll_ns: u64,
    has_ended: bool,
}

impl Agent {
    /// Creates an agent of these ranks, before its first poll.
    pub(super) fn new(
        host: Host,
        outbox: Outbox,
        callers: Vec<SimulatedRank>,
        unacked: Arc<UnackedBatches>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            host,
            outbox,
            callers,
            unacked,
            counters,
            last_poll_ns: 0,
            has_ended: false,
        }
    }

    /// Processes the calls of the ranks since the last poll; false when the delivery has ended.
    pub(super) async fn poll(&mut self, steps: &Steps, now_ns: u64) -> bool {
        self.counters.advance(now_ns.saturating_sub(ORIGIN_NS));
        if let Some(policy) = self.outbox.new_policy() {
            self.host.apply_policy(&policy);
        }
        let since_ns = std::mem::replace(&mut self.last_poll_ns, now_ns);
        let mut batches = Vec::new();
        for caller in &self.callers {
            let joins = caller.comm_inits().filter(|_| since_ns < ORIGIN_NS);
            let calls = steps
                .for_rank(caller.rank())
                .flat_map(|step| caller.step(step));
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
            self.outbox.send_verdicts(verdicts);
        }
        !self.has_ended
    }

    /// Ends the agent in the middle of its job and adds its counters to `totals`.
    pub(super) async fn finish(mut self, totals: &mut Totals) {
        let (last, verdicts) = self.host.finish(Ending::Cut);
        if let Some(verdicts) = verdicts {
            self.outbox.send_verdicts(verdicts);
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
        self.counters.record_points(batch.n_points() as u64);
        self.unacked.insert(number);
        self.has_ended |= !self.outbox.send(batch).await;
        if self.outbox.dropped() > dropped {
            let _unused = self.unacked.remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_NS: u64 = 5_000_000_000;

    fn timing(is_burst: bool) -> Timing {
        Timing {
            poll_ns: INTERVAL_NS / 10,
            polls_per_flush: 10,
            n_polls: 100,
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
