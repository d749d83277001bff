//! How the agent itself is doing: counted as it works, read when somebody asks, and told to Echo once a minute.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_agent_core::event::Event;
use fleet_agent_core::host::Totals;
use fleet_agent_core::policy::is_plausible;
use fleet_agent_core::vitals::{LostEvents, Vitals, counter_increases};
use fleet_agent_export::vitals::Vitals as Delivered;
use fleet_agent_sources::process::Processes;
use fleet_proto::policy::PolicySet;

use crate::hooks::Hooks;

/// Time between two reports to Echo, nanoseconds; what was lost is told at once.
const EVERY_NS: u64 = 60_000_000_000;

/// Counts.
#[derive(Debug)]
pub(super) struct Doing {
    delivered: Arc<Delivered>,
    hooks: Option<Hooks>,
    own: Processes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    vitals: Vitals,
    told: Vitals,
    told_ns: Option<u64>,
}

impl Doing {
    /// Of an agent that has done nothing yet.
    pub(super) fn new(delivered: Arc<Delivered>, hooks: Option<Hooks>) -> Self {
        Self {
            delivered,
            hooks,
            own: Processes::new("/proc"),
            state: Mutex::default(),
        }
    }

    /// Passes something on to the hooks, if anybody may listen.
    pub(super) fn hooks(&self, tell: impl FnOnce(&Hooks)) {
        if let Some(hooks) = &self.hooks {
            tell(hooks);
        }
    }

    /// Counts an event.
    pub(super) fn saw(&self, event: &Event) {
        let source = match event {
            Event::Call(_) | Event::Returned(_) => "calls",
            Event::Activity(_) => "kernel",
            Event::GpuOperation(_) => "device",
            Event::Started(_) | Event::Ended(_) => "processes",
            Event::Entered(_)
            | Event::Launches(_)
            | Event::CommState(_)
            | Event::ContextSwitch(_)
            | Event::Lost(_) => return,
        };
        *self.lock().vitals.events.entry(source).or_default() += 1;
    }

    /// Notes what the watch has lost so far.
    pub(super) fn lost(&self, lost: LostEvents) {
        self.lock().vitals.lost = lost;
    }

    /// Counts points.
    pub(super) fn made(&self, points: u64) {
        self.lock().vitals.points.made += points;
    }

    /// Notes the policy in use.
    pub(super) fn obey(&self, policy: &PolicySet) {
        let is_plausible = is_plausible(policy);
        if !is_plausible {
            let version = policy.version;
            tracing::warn!(
                version,
                "a policy asks for a sampling that is not believed; the usual one is kept"
            );
        }
        let vitals = &mut self.lock().vitals;
        vitals.policy_version = Some(policy.version);
        vitals.implausible_policies += u64::from(!is_plausible);
    }

    /// What Echo is to be told, if that is due.
    pub(super) fn due(
        &self,
        now_ns: u64,
        (totals, processes): (Totals, usize),
    ) -> Option<Vec<(&'static str, u64)>> {
        let state = &mut *self.lock();
        state.vitals.unknown_comm_ops = totals.unknown_comm_ops;
        state.vitals.broken_blocks = totals.broken_blocks;
        state.vitals.gpu_lost = totals.gpu_lost;
        state.vitals.processes = processes as u64;
        self.complete(&mut state.vitals);
        let counts = counter_increases(&state.told, &state.vitals);
        let since_ns = state.told_ns.map(|told_ns| now_ns.saturating_sub(told_ns));
        let is_due = since_ns.is_none_or(|since_ns| since_ns >= EVERY_NS)
            || counts.iter().any(|(_, rise)| *rise > 0);
        if !is_due {
            return None;
        }
        state.told = state.vitals.clone();
        state.told_ns = Some(now_ns);
        Some(counts.to_vec())
    }

    /// How the agent is doing now.
    pub(super) fn vitals(&self) -> Vitals {
        let mut vitals = self.lock().vitals.clone();
        self.complete(&mut vitals);
        if let Ok(usage) = self.own.usage(std::process::id()) {
            (vitals.cpu, vitals.rss_bytes) = (usage.cpu, usage.rss_bytes);
        }
        vitals
    }

    /// Adds what others count.
    fn complete(&self, vitals: &mut Vitals) {
        let delivered = self.delivered.read();
        vitals.points.sent = delivered.sent.points;
        vitals.points.dropped = delivered.lost_in_all().points + delivered.points_rejected;
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

    use super::*;

    #[test]
    fn what_is_missing_of_gpus_is_shown_here_and_not_told_to_echo() {
        let doing = Doing::new(Arc::default(), None);
        assert!(doing.due(1, (Totals::default(), 1)).is_some(), "the first");
        let gpu_lost = LostOperations {
            plugin: 1,
            implausible: 2,
            unknown_comm: 3,
            ..LostOperations::default()
        };
        let totals = Totals {
            gpu_lost,
            ..Totals::default()
        };
        assert_eq!(doing.due(2, (totals, 1)), None);
        assert_eq!(doing.vitals().gpu_lost, gpu_lost);
    }
}
