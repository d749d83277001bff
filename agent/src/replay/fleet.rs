//! Hosts of a replay, each with its own delivery.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_agent_core::batch::{Batch, VerdictBatch};
use fleet_agent_core::event::{Event, Process};
use fleet_agent_core::host::{Host, Identity, WallClock};
use fleet_agent_core::pipeline::{BlockRule, Ending};
use fleet_agent_export::Export;
use fleet_agent_export::delivery::report::Report;
use fleet_agent_export::delivery::{Delivery, Outbox, Unreachable, WhenFull};
use tokio::task::{JoinError, JoinSet};

use crate::config::{ReplayArgs, Speed};
use crate::replay::summary::Summary;

/// Interval of an agent's batches, nanoseconds of its own time.
const FLUSH_NS: u64 = 200_000_000;
/// Interval of the batches in event time when the speed is unlimited.
const FLUSH_UNPACED_NS: u64 = 2_000_000_000;

/// Interval of the hosts' ticks, nanoseconds of event time.
const TICK_NS: u64 = 500_000_000;

/// Hosts by name.
pub(super) struct Fleet<'a, E, F> {
    args: &'a ReplayArgs,
    unix_ns: i128,
    exporter: F,
    members: BTreeMap<String, ReplayHost>,
    node_of: BTreeMap<u32, String>,
    last_tick_ns: u64,
    deliveries: JoinSet<Delivered>,
    end: std::marker::PhantomData<E>,
}

struct ReplayHost {
    host: Host,
    outbox: Outbox,
    has_ended: bool,
}

impl ReplayHost {
    async fn event(&mut self, event: &Event) {
        if let Some(policy) = self.outbox.new_policy() {
            self.host.apply_policy(&policy);
        }
        let batch = self.host.on_event(event);
        self.deliver(batch).await;
    }

    /// Delivers the batch that is due, and the processes' new verdicts.
    async fn deliver(&mut self, batch: Option<Batch>) {
        if let Some(verdicts) = self.host.take_verdicts() {
            self.report_verdicts(verdicts);
        }
        if let Some(batch) = batch {
            self.send(batch).await;
        }
    }

    fn report_verdicts(&mut self, batch: VerdictBatch) {
        for own in &batch.resources {
            for verdict in &own.verdicts {
                tracing::info!(
                    node = own.resource.node,
                    rank = own.resource.rank,
                    "{verdict}"
                );
            }
        }
        self.outbox.send_verdicts(batch);
    }

    /// Queues a batch; a batch for a delivery that has ended counts as dropped.
    async fn send(&mut self, batch: Batch) {
        self.has_ended |= !self.outbox.send(batch).await;
    }
}

/// Result of the delivery of one host.
struct Delivered {
    node: String,
    report: Report,
    gave_up: Option<Unreachable>,
}

/// Reason why points of some hosts did not reach the receiver.
pub(super) enum DeliveryFailure {
    /// Hosts gave up; listed in order of their names, with the last attempt of the first.
    Unreachable {
        hosts: Vec<String>,
        first: Unreachable,
    },
    /// A delivery task panicked.
    TaskFailed(JoinError),
}

impl<'a, E, F> Fleet<'a, E, F>
where
    E: Export,
    F: FnMut(&str) -> E,
{
    pub(super) fn new(args: &'a ReplayArgs, exporter: F) -> Self {
        Self {
            args,
            unix_ns: args.start_at.unix_ns(),
            exporter,
            members: BTreeMap::new(),
            node_of: BTreeMap::new(),
            last_tick_ns: 0,
            deliveries: JoinSet::new(),
            end: std::marker::PhantomData,
        }
    }

    /// Returns whether the delivery of every host has ended early, so that continuing is pointless.
    pub(super) fn has_given_up(&self) -> bool {
        !self.members.is_empty() && self.members.values().all(|member| member.has_ended)
    }

    /// Spreads the processes of a recording over hosts; those without a rank are on the first one.
    /// `clock` is relative to the start of the replay.
    pub(super) fn trace(
        &mut self,
        (processes, unranked): (&[Process], &[u32]),
        gpu_model: Option<&str>,
        clock: WallClock,
    ) {
        self.node_of.clear();
        self.last_tick_ns = clock.origin_ns;
        let mut by_node: BTreeMap<String, Vec<Process>> = BTreeMap::new();
        if self.args.only_rank.is_none() && !unranked.is_empty() {
            let node = self.node(0);
            let pids = unranked.iter();
            self.node_of.extend(pids.map(|pid| (*pid, node.clone())));
            by_node.entry(node).or_default();
        }
        for process in processes {
            if self.args.only_rank.is_none_or(|rank| rank == process.rank) {
                let node = self.node(process.rank);
                self.node_of.insert(process.pid, node.clone());
                by_node.entry(node).or_default().push(*process);
            }
        }
        for (node, processes) in by_node {
            let rank = processes.first().map_or(0, |process| process.rank);
            let unix_ns = self.unix_ns + clock.unix_ns + skew_ns(self.args.clock_skew, rank);
            let clock = WallClock { unix_ns, ..clock };
            let rule = self.block_rule();
            let host = &mut self.member(&node).host;
            host.set_default_gpu_model(gpu_model);
            host.trace(&processes, clock, rule);
        }
    }

    /// Passes an event to its host, or to all hosts when it names no process, and delivers the
    /// batches that are due.
    pub(super) async fn event(&mut self, event: &Event) {
        match event.pid() {
            Some(pid) => {
                if let Some(node) = self.node_of.get(&pid)
                    && let Some(member) = self.members.get_mut(node)
                {
                    member.event(event).await;
                }
            }
            None => {
                for member in self.members.values_mut() {
                    member.event(event).await;
                }
            }
        }
        self.tick(event.ts_ns()).await;
    }

    /// Advances the clock of all hosts by the events of any of them: a process without events still
    /// exists.
    pub(super) async fn tick(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.last_tick_ns) < TICK_NS {
            return;
        }
        self.last_tick_ns = now_ns;
        for member in self.members.values_mut() {
            let batch = member.host.tick(now_ns);
            member.deliver(batch).await;
        }
    }

    /// Ends the processes of a recording.
    pub(super) async fn end_file(&mut self, ending: Ending) {
        for member in self.members.values_mut() {
            let (last, verdicts) = member.host.finish(ending);
            if let Some(verdicts) = verdicts {
                member.report_verdicts(verdicts);
            }
            member.deliver(last).await;
        }
    }

    /// Waits for all deliveries and adds up their reports.
    pub(super) async fn finish(mut self, summary: &mut Summary) -> Result<(), DeliveryFailure> {
        for (_, member) in std::mem::take(&mut self.members) {
            let totals = member.host.totals();
            summary.blocks += totals.blocks;
            summary.unknown_comm_ops += totals.unknown_comm_ops;
            for (mode, tally) in member.host.tallies() {
                summary.self_verdicts.entry(*mode).or_default().add(tally);
            }
            summary.delivery.points_dropped += member.outbox.dropped();
            summary.delivery.verdicts.dropped += member.outbox.verdicts_dropped();
        }
        let (mut unreachable, mut broken) = (BTreeMap::new(), None);
        while let Some(joined) = self.deliveries.join_next().await {
            match joined {
                Ok(delivered) => {
                    summary.delivery.add(&delivered.report);
                    unreachable.extend(delivered.gave_up.map(|gave_up| (delivered.node, gave_up)));
                }
                Err(error) => broken = Some(error),
            }
        }
        if let Some(error) = broken {
            return Err(DeliveryFailure::TaskFailed(error));
        }
        let hosts = unreachable.keys().cloned().collect();
        match unreachable.into_values().next() {
            Some(first) => Err(DeliveryFailure::Unreachable { hosts, first }),
            None => Ok(()),
        }
    }

    fn node(&self, rank: u32) -> String {
        let by_rank = self.args.node_per_rank || self.args.only_rank.is_some();
        match &self.args.node {
            Some(node) => node.clone(),
            None if by_rank => format!("node-{rank}"),
            None => "node-0".to_owned(),
        }
    }

    fn member(&mut self, node: &str) -> &mut ReplayHost {
        let (args, exporter, deliveries) = (self.args, &mut self.exporter, &mut self.deliveries);
        self.members.entry(node.to_owned()).or_insert_with(|| {
            let (outbox, delivery) = Delivery::new(
                exporter(node),
                args.queue_points,
                WhenFull::Wait,
                args.give_up_after,
            );
            let name = node.to_owned();
            deliveries.spawn(async move {
                let (report, gave_up) = delivery.run().await;
                Delivered {
                    node: name,
                    report,
                    gave_up,
                }
            });
            let identity = Identity {
                cluster: args.cluster.clone(),
                node: node.to_owned(),
                job: args.job.clone(),
                gpu_model: args.gpu_model.clone(),
            };
            let host = Host::new(identity, flush_every_ns(args.speed));
            ReplayHost {
                host: host.with_report_period(args.report_period),
                outbox,
                has_ended: false,
            }
        })
    }

    fn block_rule(&self) -> BlockRule {
        BlockRule {
            target_ns: self.args.block_target.as_secs_f64() * 1e9,
            exponent: self.args.block_ops.map(u64::trailing_zeros),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an interval needs no nanoseconds, and the cast saturates"
)]
fn flush_every_ns(speed: Speed) -> u64 {
    match speed {
        Speed::Times(times) => (FLUSH_NS as f64 * times).max(FLUSH_NS as f64) as u64,
        Speed::Max => FLUSH_UNPACED_NS,
    }
}

/// Clock error of a node: spread over both directions, and the same in every replay.
fn skew_ns(largest: Duration, rank: u32) -> i128 {
    let largest_ns = i128::try_from(largest.as_nanos()).unwrap_or(i128::MAX);
    match rank % 4 {
        0 => -largest_ns,
        1 => largest_ns / 3,
        2 => -largest_ns / 3,
        _ => largest_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_err_in_both_directions_within_the_limit() {
        let skews = [0, 1, 2, 3].map(|rank| skew_ns(Duration::from_nanos(9), rank));
        assert_eq!(skews, [-9, 3, -3, 9]);
    }

    #[test]
    fn batches_are_closed_by_the_agents_own_time() {
        assert_eq!(flush_every_ns(Speed::Times(1.0)), 200_000_000);
        assert_eq!(flush_every_ns(Speed::Times(10.0)), 2_000_000_000);
        assert_eq!(flush_every_ns(Speed::Times(0.1)), 200_000_000);
    }
}
