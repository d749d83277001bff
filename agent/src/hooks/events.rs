//! Events for hooks: one line of JSON each, and the events that are still active. Pure.

use std::collections::BTreeMap;

use fleet_agent_core::batch::{Resource, VerdictBatch};
use fleet_agent_core::verdict::{SelfVerdict, State};
use jiff::Timestamp;
use serde::Serialize;

/// Events of the processes that are stragglers now, by process id.
#[derive(Debug, Default)]
pub(super) struct ActiveEvents(BTreeMap<u32, Event>);

/// Line of JSON. Names and meanings are a contract with operators' hooks; unknown values are null.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Event {
    event: &'static str,
    time: String,
    cluster: String,
    node: String,
    job: Option<String>,
    rank: Option<u32>,
    pid: u32,
    pod: Option<String>,
    namespace: Option<String>,
    gpu_uuid: Option<String>,
    state: &'static str,
    mode: &'static str,
    lag_ms: Option<f64>,
    z: Option<f64>,
    effect_ratio: Option<f64>,
    policy_version: Option<u64>,
}

impl ActiveEvents {
    /// Records verdicts and returns their lines.
    pub(super) fn record(&mut self, batch: &VerdictBatch) -> Vec<String> {
        let mut lines = Vec::new();
        for own in &batch.resources {
            for verdict in &own.verdicts {
                let event = Event::new(&own.resource, verdict);
                lines.extend(event.line());
                match verdict.state {
                    State::Raised => self.0.insert(event.pid, event),
                    State::Cleared => self.0.remove(&event.pid),
                };
            }
        }
        lines
    }

    /// Removes a process that has ended; returns the line that resolves its event, if it was a
    /// straggler.
    pub(super) fn remove(&mut self, pid: u32, time_ns: u64) -> Option<String> {
        let active = self.0.remove(&pid)?;
        let resolved = Event {
            event: name(State::Cleared),
            time: rfc3339(time_ns),
            state: State::Cleared.name(),
            lag_ms: None,
            z: None,
            effect_ratio: None,
            ..active
        };
        resolved.line()
    }

    /// Returns the lines of the active events, by process.
    pub(super) fn lines(&self) -> String {
        self.0.values().filter_map(Event::line).collect()
    }
}

impl Event {
    fn new(resource: &Resource, verdict: &SelfVerdict) -> Self {
        Self {
            event: name(verdict.state),
            time: rfc3339(verdict.time_ns),
            cluster: resource.cluster.clone(),
            node: resource.node.clone(),
            job: resource.job.clone(),
            rank: resource.rank,
            pid: resource.pid,
            pod: resource.pod.clone(),
            namespace: resource.namespace.clone(),
            gpu_uuid: resource.gpu_uuid.clone(),
            state: verdict.state.name(),
            mode: verdict.mode.name(),
            lag_ms: verdict.measure.map(|measure| measure.lag_ms),
            z: verdict.measure.map(|measure| measure.z),
            effect_ratio: verdict.measure.map(|measure| measure.effect_ratio),
            policy_version: verdict.policy_version,
        }
    }

    fn line(&self) -> Option<String> {
        let json = serde_json::to_string(self).ok()?;
        Some(json + "\n")
    }
}

fn name(state: State) -> &'static str {
    match state {
        State::Raised => "straggler_state",
        State::Cleared => "straggler_resolved",
    }
}

fn rfc3339(unix_ns: u64) -> String {
    let time = Timestamp::from_nanosecond(unix_ns.into());
    time.unwrap_or_default().to_string()
}
