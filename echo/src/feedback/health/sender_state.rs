//! State of one sender of health scores.

use std::sync::Arc;

use echo_core::ids::{ClusterId, IncidentId};
use echo_core::model::detector_output::{
    Baseline, Condition, ConditionKind, Finding, Incident, IncidentState, Severity,
};
use echo_core::units::Nanos;

use super::sender::Sender;

/// Number of consecutive low scores that raise an incident.
const RAISE_AFTER: u32 = 2;

/// Number of consecutive good scores that clear it.
const CLEAR_AFTER: u32 = 3;

/// Distance of a score below the threshold from which an incident is a warning.
const WARN_BELOW: f64 = 0.1;

/// Distance from which it is critical.
const CRITICAL_BELOW: f64 = 0.3;

/// Event time within which a cleared incident is reopened, milliseconds.
const REOPEN_WITHIN_MS: f64 = 60_000.0;

/// Confidence of an incident: a score is self-reported, and gives neither cause nor effect.
const CONFIDENCE: f64 = 0.5;

/// Thresholds for a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Thresholds {
    /// Moving average, as sent to the agents.
    pub(super) average: f64,
    /// Threshold of the latest scores of the peers alone. It falls at once when all nodes get worse
    /// together, so that no node is singled out while the average follows.
    pub(super) fresh: f64,
}

impl Thresholds {
    /// Returns the distance of a low score below both thresholds; `None` for a good score.
    fn distance_to(self, score: f64) -> Option<f64> {
        let distance = self.average.min(self.fresh) - score;
        (distance > 0.0).then_some(distance)
    }
}

/// Run of scores of one sender, and its incident.
#[derive(Debug, Default)]
pub(super) struct SenderState {
    n_low: u32,
    n_good: u32,
    first_low: Option<Nanos>,
    incident: Option<Incident>,
}

impl SenderState {
    /// Processes a score of the sender at the given event time. Returns the incident if it changed.
    pub(super) fn observe(
        &mut self,
        (cluster, sender, at): (&ClusterId, &Sender, Nanos),
        score: f64,
        thresholds: &Thresholds,
    ) -> Option<Incident> {
        let Some(distance) = thresholds.distance_to(score) else {
            return self.good(at);
        };
        self.n_good = 0;
        self.n_low = self.n_low.saturating_add(1);
        let first_low = *self.first_low.get_or_insert(at);
        if !self.is_open() && self.n_low < RAISE_AFTER {
            return None;
        }
        let mut incident = self
            .take_known(at)
            .unwrap_or_else(|| raise(cluster, sender, first_low, at));
        incident.last_seen = incident.last_seen.max(at);
        let reason = describe(sender, score, thresholds.average);
        incident.reason.clone_from(&reason);
        incident.severity = incident.severity.max(severity(distance));
        incident.finding = Finding::Condition(Condition {
            node: Some(sender.node.clone()),
            ranks: sender.rank.into_iter().collect(),
            detail: reason,
            ..Condition::new(ConditionKind::UnhealthyNode)
        });
        self.incident = Some(incident.clone());
        Some(incident)
    }

    /// Restores the incident known from before a restart, in place of the one found by replaying
    /// scores.
    pub(super) fn restore(&mut self, known: Option<Incident>) {
        self.incident = known;
    }

    fn good(&mut self, at: Nanos) -> Option<Incident> {
        (self.n_low, self.first_low) = (0, None);
        self.n_good = self.n_good.saturating_add(1);
        if self.n_good < CLEAR_AFTER {
            return None;
        }
        self.clear(at)
    }

    /// Resets the run after a gap without comparable scores, and clears an open incident for the
    /// given reason as of its last low score.
    pub(super) fn end(&mut self, reason: &str) -> Option<Incident> {
        (self.n_low, self.n_good, self.first_low) = (0, 0, None);
        if !self.is_open() {
            return None;
        }
        let incident = self.incident.as_mut()?;
        incident.reason = format!("{}; cleared because {reason}", incident.reason);
        if let Finding::Condition(condition) = &mut incident.finding {
            condition.detail.clone_from(&incident.reason);
        }
        let last_seen = incident.last_seen;
        self.clear(last_seen)
    }

    fn clear(&mut self, at: Nanos) -> Option<Incident> {
        let incident = self.incident.as_mut()?;
        if incident.state == IncidentState::Cleared {
            return None;
        }
        incident.state = IncidentState::Cleared;
        incident.cleared_at = Some(at.max(incident.last_seen));
        incident.cleared_iteration = Some(0.0);
        Some(incident.clone())
    }

    fn is_open(&self) -> bool {
        let state = self.incident.as_ref().map(|incident| incident.state);
        state == Some(IncidentState::Open)
    }

    /// Takes the open incident, or reopens one that was cleared recently.
    fn take_known(&mut self, at: Nanos) -> Option<Incident> {
        let mut incident = self.incident.take()?;
        if incident.state == IncidentState::Open {
            return Some(incident);
        }
        if at.millis_since(incident.last_seen) > REOPEN_WITHIN_MS {
            return None;
        }
        incident.state = IncidentState::Open;
        incident.cleared_at = None;
        incident.cleared_iteration = None;
        incident.occurrences += 1;
        Some(incident)
    }
}

/// Severity of a score that is this far below the threshold.
fn severity(distance: f64) -> Severity {
    if distance >= CRITICAL_BELOW {
        Severity::Critical
    } else if distance >= WARN_BELOW {
        Severity::Warn
    } else {
        Severity::Info
    }
}

fn describe(sender: &Sender, score: f64, threshold: f64) -> String {
    let rank = sender.rank.map(|rank| format!(" (rank {rank})"));
    format!(
        "node {}{} reports health score {score:.2}, below the threshold {threshold:.2} of its peers",
        sender.node,
        rank.unwrap_or_default(),
    )
}

/// Returns the ID of the incident of a sender that began with the low score at that event time.
pub(super) fn identity(cluster: &ClusterId, sender: &Sender, first: Nanos) -> IncidentId {
    let text = format!("health|{cluster}|{sender:?}|{}", first.value());
    IncidentId::from_description(&text)
}

/// Returns the cohort name of health score incidents.
pub(super) fn cohort(cluster: &ClusterId) -> Arc<str> {
    Arc::from(format!("health/{cluster}"))
}

/// Creates an incident. Iterations and periods are zero, since scores have none.
fn raise(cluster: &ClusterId, sender: &Sender, first: Nanos, now: Nanos) -> Incident {
    Incident {
        id: identity(cluster, sender, first),
        cluster: cluster.clone(),
        job: sender.job.clone(),
        cohort: cohort(cluster),
        finding: Finding::Condition(Condition::new(ConditionKind::UnhealthyNode)),
        state: IncidentState::Open,
        first_seen: first,
        last_seen: now,
        raised_at: now,
        first_iteration: 0.0,
        raised_iteration: 0.0,
        cleared_iteration: None,
        cleared_at: None,
        is_provisional: false,
        severity: Severity::Info,
        stability: 1.0,
        occurrences: 1,
        effect_ratio: 0.0,
        period_ms: 0.0,
        baseline: Baseline::None { period_ms: 0.0 },
        confidence: CONFIDENCE,
        reason: String::new(),
        inputs: None,
    }
}
