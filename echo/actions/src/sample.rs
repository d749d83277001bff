//! Examples for tests.

use std::time::Duration;

use echo_core::model::detector_output::Severity;
use echo_core::units::Nanos;

use crate::breaker::ClusterHealth;
use crate::notice::{Blame, Candidate, Notice};
use crate::policy::{Mode, Policy};
use crate::selection::Snapshot;
use crate::state::OpenAction;

/// Time at which the tests begin.
pub(crate) const START: Nanos = Nanos::new(1_790_000_000_000_000_000);

/// The instant some seconds after the beginning.
pub(crate) fn at(seconds: u64) -> Nanos {
    START.after(Duration::from_secs(seconds))
}

/// Facts about an incident of a node.
pub(crate) fn notice(node: &str, incident: u64) -> Notice {
    Notice {
        incident_id: format!("{incident:016x}"),
        occurrence: 1,
        cluster: "lab".to_owned(),
        job: Some("job-1".to_owned()),
        node: node.to_owned(),
        rank: 17,
        gpu_uuid: Some("GPU-1".to_owned()),
        class: "host".to_owned(),
        severity: "warn".to_owned(),
        confidence: 0.95,
        lag_ms: 26.8,
        effect_ratio: 0.2,
        reason: "rank 17 is late".to_owned(),
        advice: vec!["pin its CPUs".to_owned()],
        recurrence: None,
        first_seen: "2026-09-21T14:13:10Z".to_owned(),
        raised_at: "2026-09-21T14:13:20Z".to_owned(),
    }
}

/// An open incident of a node.
pub(crate) fn candidate(node: &str, incident: u64) -> Candidate {
    Candidate {
        blame: Blame::Host,
        severity: Severity::Warn,
        notice: notice(node, incident),
    }
}

/// A fully reporting cluster of 100 nodes with these incidents.
pub(crate) fn snapshot(candidates: Vec<Candidate>) -> Snapshot {
    let health = ClusterHealth {
        nodes: 100,
        coverage: Some(1.0),
    };
    Snapshot {
        candidates,
        clusters: [("lab".to_owned(), health)].into(),
        is_behind: false,
        is_killed: false,
    }
}

/// A policy with consumers of each kind, for incidents that are open for a minute.
pub(crate) fn policy(mode: Mode) -> Policy {
    let mode = mode.name();
    let text = format!(
        "limits: {{ max_nodes: 3, max_percent: 10 }}
consumers:
  pager: {{ mode: {mode}, webhook: {{ url: 'http://127.0.0.1:1/', secret_file: key }} }}
  alerts: {{ mode: {mode}, alertmanager: {{ url: 'http://127.0.0.1:1' }} }}
  nodes: {{ mode: {mode}, kubernetes: {{}} }}
  slurm: {{ mode: {mode}, slurm: {{}} }}
rules:
  - {{ consumers: [pager, slurm], open_for: 1m }}
"
    );
    Policy::parse(&text, "/etc".as_ref()).unwrap()
}

/// An action in force.
pub(crate) fn open_action(consumer: &str, notice: &Notice) -> OpenAction {
    OpenAction {
        consumer: consumer.to_owned(),
        target: notice.incident_id.clone(),
        mode: Mode::Act,
        is_applied: true,
        opened_at: START.value(),
        reported_at: START.value(),
        sequence: 0,
        notice: notice.clone(),
    }
}
