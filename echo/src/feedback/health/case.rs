//! What is held against one sender of health scores.

use std::sync::Arc;

use echo_core::ids::{ClusterId, IncidentId};
use echo_core::model::detector_output::{
    Baseline, Condition, ConditionKind, Finding, Incident, IncidentState, Severity,
};
use echo_core::units::Nanos;

use super::sender::Sender;

/// Low scores in a row that raise an incident.
const RAISE_AFTER: u32 = 2;

/// Good scores in a row that clear it.
const CLEAR_AFTER: u32 = 3;

/// An incident that comes back within this event time is the same one, milliseconds.
const REOPEN_WITHIN_MS: f64 = 60_000.0;

/// How sure it is that a low score means something: it is the sender's own, and says neither what nor how much.
const CONFIDENCE: f64 = 0.5;

/// What a score is judged by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    /// The threshold as the agents know it.
    pub(super) average: f64,
    /// The threshold of the peers' latest scores alone. Where everybody gets worse at once it falls at once, and nobody
    /// is singled out while the average follows.
    pub(super) fresh: f64,
}

impl Line {
    fn is_below(self, score: f64) -> bool {
        score < self.average.min(self.fresh)
    }
}

/// The scores of one sender in a row, and the incident that they make.
#[derive(Debug, Default)]
pub(super) struct Case {
    n_low: u32,
    n_good: u32,
    first_low: Option<Nanos>,
    incident: Option<Incident>,
}

impl Case {
    /// Judges a score of the sender at the given event time; returns the incident if that changes it.
    pub(super) fn judge(
        &mut self,
        (cluster, sender, at): (&ClusterId, &Sender, Nanos),
        score: f64,
        line: &Line,
    ) -> Option<Incident> {
        if !line.is_below(score) {
            return self.good(at);
        }
        self.n_good = 0;
        self.n_low = self.n_low.saturating_add(1);
        let first_low = *self.first_low.get_or_insert(at);
        if !self.is_open() && self.n_low < RAISE_AFTER {
            return None;
        }
        let mut incident = self
            .take_known(at)
            .unwrap_or_else(|| raise(cluster, sender, (first_low, at)));
        incident.last_seen = incident.last_seen.max(at);
        let told = told(sender, score, line.average);
        incident.reason.clone_from(&told);
        incident.finding = Finding::Condition(Condition {
            kind: ConditionKind::Inconclusive,
            ranks: sender.rank.into_iter().collect(),
            detail: told,
        });
        self.incident = Some(incident.clone());
        Some(incident)
    }

    /// Goes on with an incident of this sender as it was concluded before, in place of what was found in judging its
    /// scores again.
    pub(super) fn adopt(&mut self, known: Option<Incident>) {
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

    /// Begins anew after scores that could not be judged: clears what is open for the given reason, as of the last
    /// score that spoke for it.
    pub(super) fn end(&mut self, why: &str) -> Option<Incident> {
        (self.n_low, self.n_good, self.first_low) = (0, 0, None);
        if !self.is_open() {
            return None;
        }
        let incident = self.incident.as_mut()?;
        incident.reason = format!("{}; cleared because {why}", incident.reason);
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

    /// The incident that is open, or one that was cleared only just and is opened again.
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

fn told(sender: &Sender, score: f64, threshold: f64) -> String {
    let rank = sender.rank.map(|rank| format!(" (rank {rank})"));
    format!(
        "node {}{} reports health score {score:.2}, below the threshold {threshold:.2} of its peers",
        sender.node,
        rank.unwrap_or_default(),
    )
}

/// Identity of the incident of a sender that began with the low score of that event time.
pub(super) fn identity(cluster: &ClusterId, sender: &Sender, first: Nanos) -> IncidentId {
    let text = format!("health|{cluster}|{sender:?}|{}", first.value());
    IncidentId::from_description(&text)
}

/// The cohort that incidents of health scores name.
pub(super) fn cohort(cluster: &ClusterId) -> Arc<str> {
    Arc::from(format!("health/{cluster}"))
}

/// A new incident. Scores know no iterations and no periods: those numbers are zero.
fn raise(cluster: &ClusterId, sender: &Sender, (first, now): (Nanos, Nanos)) -> Incident {
    Incident {
        id: identity(cluster, sender, first),
        cluster: cluster.clone(),
        job: sender.job.clone(),
        cohort: cohort(cluster),
        finding: Finding::Condition(Condition::new(ConditionKind::Inconclusive)),
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
