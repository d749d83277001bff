//! The agent's own metrics: counted as it works, read by each scrape, and reported to Echo every
//! minute.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_agent_core::event::Event;
use fleet_agent_core::host::Totals;
use fleet_agent_core::measurement::Measurement;
use fleet_agent_core::policy::is_plausible;
use fleet_agent_core::vitals::{LostEvents, Vitals, counter_increases};
use fleet_agent_export::vitals::Vitals as Delivered;
use fleet_agent_health::sentinel::SentinelCounts;
use fleet_agent_health::standing::{Standings, State as HostState};
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::watch::now_ns;
use fleet_agent_stacks::sampler::Counts;
use fleet_proto::policy::PolicySet;

use crate::hooks::Hooks;
use crate::measurements::Measurements;

/// Report interval, nanoseconds; losses are reported at once.
const INTERVAL_NS: u64 = 60_000_000_000;

/// The same while Echo names this host. Echo answers reports, and a host whose job has ended has no
/// others: it would stay unhealthy for a minute.
const NAMED_INTERVAL_NS: u64 = 5_000_000_000;

/// Counters of the agent.
#[derive(Debug)]
pub(super) struct SelfMetrics {
    delivered: Arc<Delivered>,
    hooks: Option<Hooks>,
    measurements: Option<Measurements>,
    sentinel: SentinelCounts,
    standings: Option<Standings>,
    own: Processes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    vitals: Vitals,
    reported_vitals: Vitals,
    reported_ns: Option<u64>,
}

impl SelfMetrics {
    /// Counters of an agent that has just started.
    pub(super) fn new(delivered: Arc<Delivered>, hooks: Option<Hooks>) -> Self {
        Self {
            delivered,
            hooks,
            measurements: None,
            sentinel: SentinelCounts::default(),
            standings: None,
            own: Processes::new("/proc"),
            state: Mutex::default(),
        }
    }

    /// Counts events in these measurements as well.
    pub(super) fn with_measurements(mut self, measurements: Option<Measurements>) -> Self {
        self.measurements = measurements;
        self
    }

    /// Adds the counts of reports to `NVSentinel`.
    pub(super) fn with_sentinel(mut self, counts: SentinelCounts) -> Self {
        self.sentinel = counts;
        self
    }

    /// Reports more often while this host is named by these.
    pub(super) fn with_standings(mut self, standings: Standings) -> Self {
        self.standings = Some(standings);
        self
    }

    /// Returns the measurements of the host now.
    pub(super) fn measurements(&self) -> Vec<Measurement> {
        let read = |measurements: &Measurements| measurements.read(Path::new("/proc"), now_ns());
        self.measurements.as_ref().map(read).unwrap_or_default()
    }

    /// Runs `publish` on the hook socket, if there is one.
    pub(super) fn with_hooks(&self, publish: impl FnOnce(&Hooks)) {
        if let Some(hooks) = &self.hooks {
            publish(hooks);
        }
    }

    /// Counts an event.
    pub(super) fn record_event(&self, event: &Event) {
        if let Some(measurements) = &self.measurements {
            measurements.record_event(event, &self.own);
        }
        let source = match event {
            Event::Call(_) | Event::Returned(_) => "calls",
            Event::Activity(_) | Event::Delays(_) | Event::CallDurations(_) => "kernel",
            Event::GpuOperation(_) => "device",
            Event::Started(_) | Event::Ended(_) => "processes",
            Event::Entered(_)
            | Event::Launches(_)
            | Event::CommState(_)
            | Event::Stack(_)
            | Event::ContextSwitch(_)
            | Event::Lost(_) => return,
        };
        *self.lock().vitals.events.entry(source).or_default() += 1;
    }

    /// Sets what the watch has lost so far.
    pub(super) fn set_lost_events(&self, lost: LostEvents) {
        self.lock().vitals.lost = lost;
    }

    /// Adds samples of stacks.
    pub(super) fn add_stack_samples(&self, counts: Counts, is_over_budget: bool) {
        let stacks = &mut self.lock().vitals.stacks;
        stacks.samples += counts.samples;
        stacks.torn += counts.torn;
        stacks.dropped += counts.dropped;
        stacks.over_budget += u64::from(is_over_budget);
    }

    /// Counts points.
    pub(super) fn record_points(&self, points: u64) {
        self.lock().vitals.points.made += points;
    }

    /// Records the policy in use.
    pub(super) fn record_policy(&self, policy: &PolicySet) {
        let is_plausible = is_plausible(policy);
        if !is_plausible {
            let version = policy.version;
            tracing::warn!(
                version,
                "policy set has an implausible sampling rate; the default rate stays in use"
            );
        }
        let vitals = &mut self.lock().vitals;
        vitals.policy_version = Some(policy.version);
        vitals.implausible_policies += u64::from(!is_plausible);
    }

    /// Returns the counters to report to Echo, if a report is due.
    pub(super) fn take_report(
        &self,
        now_ns: u64,
        totals: Totals,
        processes: usize,
    ) -> Option<Vec<(&'static str, u64)>> {
        let state = &mut *self.lock();
        state.vitals.unknown_comm_ops = totals.unknown_comm_ops;
        state.vitals.broken_blocks = totals.broken_blocks;
        state.vitals.gpu_lost = totals.gpu_lost;
        state.vitals.processes = processes as u64;
        self.add_delivery(&mut state.vitals);
        let counts = counter_increases(&state.reported_vitals, &state.vitals);
        let since_ns = state
            .reported_ns
            .map(|reported_ns| now_ns.saturating_sub(reported_ns));
        let is_due = since_ns.is_none_or(|since_ns| since_ns >= self.interval_ns())
            || counts.iter().any(|(_, rise)| *rise > 0);
        if !is_due {
            return None;
        }
        state.reported_vitals = state.vitals.clone();
        state.reported_ns = Some(now_ns);
        Some(counts.to_vec())
    }

    fn interval_ns(&self) -> u64 {
        let standing = self.standings.as_ref().map(Standings::now);
        if standing.is_some_and(|standing| standing.state() == HostState::Straggler) {
            NAMED_INTERVAL_NS
        } else {
            INTERVAL_NS
        }
    }

    /// Returns the current vitals.
    pub(super) fn vitals(&self) -> Vitals {
        let mut vitals = self.lock().vitals.clone();
        self.add_delivery(&mut vitals);
        if let Ok(usage) = self.own.usage(std::process::id()) {
            (vitals.cpu, vitals.rss_bytes) = (usage.cpu, usage.rss_bytes);
        }
        vitals
    }

    /// Adds the counters of the delivery, the hook socket and `NVSentinel`.
    fn add_delivery(&self, vitals: &mut Vitals) {
        let delivered = self.delivered.read();
        vitals.points.sent = delivered.sent.points;
        vitals.points.dropped = delivered.total_lost().points + delivered.points_rejected;
        vitals.sentinel_events = self.sentinel.sent();
        vitals.sentinel_failures = self.sentinel.failed();
        vitals.spool_bytes = delivered.spooled_bytes;
        if let Some(hooks) = &self.hooks {
            let counts = hooks.counts();
            (vitals.hook_clients, vitals.hook_clients_dropped) = (counts.connected, counts.dropped);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use fleet_agent_core::vitals::LostOperations;
    use fleet_agent_export::statement::Statement;
    use fleet_proto::policy::{Culprit, HostCulprits};
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn a_host_that_echo_names_reports_every_five_seconds_and_another_one_every_minute() {
        let seconds = |n: u64| n * 1_000_000_000;
        for (node, is_due) in [("node-3", true), ("node-4", false)] {
            let culprits = vec![Culprit {
                node_id: "node-3".to_owned(),
                ..Culprit::default()
            }];
            let statement = Statement::new(Some(HostCulprits { culprits }));
            let (_statements, statements) = watch::channel(Some(statement));
            let own = SelfMetrics::new(Arc::default(), None);
            let own = own.with_standings(Standings::new(statements, node));
            let is_reported = |at| own.take_report(at, Totals::default(), 1).is_some();
            assert!(is_reported(seconds(1)), "the first");
            assert!(!is_reported(seconds(5)));
            assert_eq!(is_reported(seconds(6)), is_due, "{node}");
            assert!(is_reported(seconds(66)));
        }
    }

    #[test]
    fn operations_in_no_sum_are_reported_to_echo_and_other_lost_gpu_times_only_to_prometheus() {
        let self_metrics = SelfMetrics::new(Arc::default(), None);
        assert!(
            self_metrics.take_report(1, Totals::default(), 1).is_some(),
            "the first"
        );
        let report = |now_ns, gpu_lost| {
            let totals = Totals {
                gpu_lost,
                ..Totals::default()
            };
            self_metrics.take_report(now_ns, totals, 1)
        };
        let placement = LostOperations {
            implausible: 2,
            unknown_comm: 3,
            ..LostOperations::default()
        };
        assert_eq!(report(2, placement), None);
        assert_eq!(self_metrics.vitals().gpu_lost, placement);
        let dropped = LostOperations {
            plugin: 1,
            ..placement
        };
        let reported = report(3, dropped).unwrap();
        assert!(reported.contains(&("fleet.agent.gpu_operations_lost", 1)));
    }
}
