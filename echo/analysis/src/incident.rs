//! An open incident: its subject, its start, and the measurements since then.

use std::collections::BTreeSet;
use std::sync::Arc;

use echo_core::ids::{IncidentId, Rank};
use echo_core::model::detector_output::{
    Baseline, ConditionKind, Finding, Incident, IncidentState, Severity, Signal,
};
use echo_core::text::decimal;
use echo_core::units::Nanos;

use crate::assembly::{CohortBlock, CohortKey};
use crate::finding::{Diagnosis, Subject};
use crate::verdict::WindowKind;

/// Damage, as a share of the healthy period, from which an incident has severity `warn`.
const WARN: f64 = 0.05;

/// Damage from which it has severity `critical`.
const CRITICAL: f64 = 0.10;

/// Part of the reason for a rank whose GPU is late while its host is not.
const DISAGREEMENT: &str = " (source_disagreement: its host submits work on time, so host signals alone would not show it)";

/// Evaluations after the first during which the healthy period is still refined where no healthy
/// iteration was seen: other cohorts are evaluated after the one that raised the incident.
const REFINEMENTS: u32 = 4;

/// An open incident.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenIncident {
    /// Reported state.
    pub incident: Incident,
    /// Consecutive evaluations without a finding.
    pub calm: u32,
    /// Kind of the window that raised it.
    pub window_kind: WindowKind,
    period: WeightedMean,
    lag: WeightedMean,
    n_affected: u32,
    n_blocks: u32,
    refinements: u32,
    /// True if the culprit's GPU is late but its host is not.
    disagrees: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct WeightedMean {
    sum: f64,
    weight: f64,
}

impl WeightedMean {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum = value.mul_add(weight, self.sum);
        self.weight += weight;
    }

    fn value(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

impl OpenIncident {
    /// Opens an incident at the end of `now`, with `onset` as its first affected block.
    pub fn raise(
        cohort: &CohortKey,
        diagnosis: &Diagnosis,
        baseline: Baseline,
        onset: &CohortBlock,
        now: &CohortBlock,
    ) -> Self {
        let incident = Incident {
            id: incident_id(cohort, diagnosis.subject, onset.seqs.first()),
            cluster: cohort.cluster.clone(),
            job: cohort.job.clone(),
            cohort: Arc::from(cohort.to_string()),
            finding: diagnosis.finding.clone(),
            state: IncidentState::Open,
            first_seen: onset.time.from(),
            last_seen: now.time.to(),
            raised_at: now.time.to(),
            first_iteration: onset.first_iteration(),
            raised_iteration: now.end_iteration(),
            cleared_iteration: None,
            cleared_at: None,
            is_provisional: diagnosis.is_provisional,
            severity: Severity::Info,
            stability: 1.0,
            occurrences: 1,
            effect_ratio: 0.0,
            period_ms: baseline.period_ms(),
            baseline,
            confidence: diagnosis.confidence,
            reason: String::new(),
            inputs: diagnosis.inputs.clone(),
        };
        let mut raised = Self::opened(incident, diagnosis.window_kind);
        raised.disagrees = diagnosis.disagrees;
        raised
    }

    /// Reopens a cleared incident.
    pub fn reopen(mut incident: Incident, diagnosis: &Diagnosis, now: &CohortBlock) -> Self {
        incident.state = IncidentState::Open;
        let cleared_iteration = incident.cleared_iteration.take();
        incident.cleared_at = None;
        incident.occurrences += 1;
        incident.last_seen = now.time.to();
        let lasted = cleared_iteration.map_or(0.0, |cleared| cleared - incident.first_iteration);
        Self::ongoing(incident, lasted, now, diagnosis.window_kind)
    }

    /// Restores an open incident of an earlier detector, at the end of `now`.
    pub fn resume(incident: Incident, now: &CohortBlock) -> Self {
        let lasted = now.end_iteration() - incident.first_iteration;
        Self::ongoing(incident, lasted, now, WindowKind::Short)
    }

    /// Creates an incident whose means have the weight of the iterations that it has lasted.
    fn ongoing(
        incident: Incident,
        lasted: f64,
        now: &CohortBlock,
        window_kind: WindowKind,
    ) -> Self {
        let lasted = lasted.max(now.iterations);
        let mut known = Self::opened(incident, window_kind);
        let incident = &known.incident;
        known.period.add(incident.period_ms, lasted);
        if let Finding::Culprit(culprit) = &incident.finding {
            known.lag.add(culprit.lag_ms, lasted);
        }
        known.n_blocks = count(lasted / now.iterations);
        known.n_affected = count(incident.stability * f64::from(known.n_blocks));
        known
    }

    fn opened(incident: Incident, window_kind: WindowKind) -> Self {
        // The reason still describes the restored incident.
        let disagrees = incident.reason.contains(DISAGREEMENT);
        Self {
            incident,
            calm: 0,
            window_kind,
            period: WeightedMean::default(),
            lag: WeightedMean::default(),
            n_affected: 0,
            n_blocks: 0,
            refinements: 0,
            disagrees,
        }
    }

    /// Records a block after the start that the incident does not affect.
    pub fn mark_unaffected(&mut self) {
        self.n_blocks = self.n_blocks.saturating_add(1);
        self.incident.stability = f64::from(self.n_affected) / f64::from(self.n_blocks);
    }

    /// Records a block that the incident affects; `lag_ms` is the culprit's lag in it.
    pub fn mark_affected(&mut self, block: &CohortBlock, lag_ms: Option<f64>) {
        if let Some(reading) = block.period {
            self.period.add(reading.ms, reading.iterations);
        }
        if let Some(lag_ms) = lag_ms {
            self.lag.add(lag_ms, block.iterations);
        }
        self.n_affected = self.n_affected.saturating_add(1);
        self.mark_unaffected();
        let incident = &mut self.incident;
        incident.last_seen = incident.last_seen.max(block.time.to());
        let healthy = incident.baseline.period_ms();
        if let Some(period_ms) = self.period.value() {
            incident.period_ms = period_ms;
            incident.effect_ratio = (period_ms - healthy) / healthy;
            incident.severity = severity(incident.effect_ratio);
        }
        if let (Finding::Culprit(culprit), Some(lag_ms)) = (&mut incident.finding, self.lag.value())
        {
            // All operations of an iteration show the same lateness, so their sum is not the loss.
            let lost_ms = incident.period_ms - healthy;
            let is_sum = culprit.signal == Signal::DeviceWait && lost_ms > 0.0;
            culprit.lag_ms = if is_sum { lag_ms.min(lost_ms) } else { lag_ms };
        }
        self.explain();
    }

    /// Updates it from a later diagnosis of the same subject: the strongest one is kept.
    pub fn strengthen(&mut self, diagnosis: &Diagnosis) {
        self.incident.is_provisional &= diagnosis.is_provisional;
        self.disagrees |= diagnosis.disagrees;
        match (&mut self.incident.finding, &diagnosis.finding) {
            (Finding::Culprit(known), Finding::Culprit(later)) => {
                if later.z > known.z {
                    let (lag_ms, victims) = (known.lag_ms, std::mem::take(&mut known.victims));
                    known.clone_from(later);
                    known.lag_ms = lag_ms;
                    known.victims = victims;
                    self.incident.inputs.clone_from(&diagnosis.inputs);
                }
                self.incident.confidence = self.incident.confidence.max(diagnosis.confidence);
            }
            (Finding::Condition(known), Finding::Condition(later)) => known.clone_from(later),
            (Finding::Culprit(_), Finding::Condition(_))
            | (Finding::Condition(_), Finding::Culprit(_)) => {}
        }
    }

    /// Adopts a later estimate of the healthy period if it gives a smaller loss.
    pub fn refine(&mut self, later: Option<Baseline>) {
        if self.refinements >= REFINEMENTS {
            return;
        }
        self.refinements += 1;
        if let (Baseline::None { period_ms: known }, Some(Baseline::None { period_ms: later })) =
            (self.incident.baseline, later)
            && later > known
        {
            self.incident.baseline = Baseline::None { period_ms: later };
        }
    }

    /// Adds ranks that are late only because they wait for this culprit.
    pub fn add_victims(&mut self, victims: &BTreeSet<Rank>) {
        if let Finding::Culprit(culprit) = &mut self.incident.finding
            && culprit.signal == Signal::DeviceWait
        {
            let mut all: BTreeSet<Rank> = culprit.victims.iter().copied().collect();
            all.extend(victims.iter().filter(|rank| **rank != culprit.rank));
            culprit.victims = all.into_iter().collect();
        }
    }

    /// Closes the incident at the end of `now`.
    pub fn clear(mut self, now: &CohortBlock) -> Incident {
        self.incident.state = IncidentState::Cleared;
        self.incident.cleared_iteration = Some(now.end_iteration());
        self.incident.cleared_at = Some(now.time.to());
        self.incident
    }

    fn explain(&mut self) {
        let incident = &self.incident;
        let (healthy, period) = (incident.baseline.period_ms(), incident.period_ms);
        let loss = format!(
            "an iteration takes {} ms instead of {} ms",
            decimal(period, 1),
            decimal(healthy, 1)
        );
        self.incident.reason = match &incident.finding {
            Finding::Culprit(culprit) => {
                let hidden = if self.disagrees { DISAGREEMENT } else { "" };
                format!(
                    "rank {} comes {} ms later than the median of its peers ({}), and {loss}{hidden}",
                    culprit.rank,
                    decimal(culprit.lag_ms, 1),
                    culprit.signal.meaning(),
                )
            }
            Finding::Condition(condition) => match condition.kind {
                ConditionKind::Inconclusive => format!("{loss}, but {}", condition.detail),
                ConditionKind::UniformSlowdown => format!(
                    "{loss} on every rank and no rank is late on its host: the GPUs, the network or the input slowed down"
                ),
                ConditionKind::Network => format!("{loss}: {}", condition.detail),
                ConditionKind::StageImbalance
                | ConditionKind::DataImbalance
                | ConditionKind::LateNode
                | ConditionKind::Stall
                | ConditionKind::Hang
                | ConditionKind::IdentityConflict
                | ConditionKind::UnhealthyNode => condition.detail.clone(),
            },
        };
    }
}

/// Returns the nearest whole number, limited to the number of blocks beyond which one more makes no
/// difference.
fn count(number: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the range, and what is no number becomes 0"
    )]
    let count = number.round().clamp(0.0, 1e6) as u32;
    count
}

/// Severity of the damage by its share of the healthy period.
pub(crate) fn severity(effect_ratio: f64) -> Severity {
    if effect_ratio >= CRITICAL {
        Severity::Critical
    } else if effect_ratio >= WARN {
        Severity::Warn
    } else {
        Severity::Info
    }
}

/// Identifier of an incident. The same events always give the same identifier.
pub fn incident_id(cohort: &CohortKey, subject: Subject, first_seq: u64) -> IncidentId {
    let text = format!("{}|{cohort}|{subject:?}|{first_seq}", cohort.cluster);
    IncidentId::from_description(&text)
}

/// Ends the incident at its last observation, because nothing is left to continue it.
pub fn abandoned(mut incident: Incident) -> Incident {
    incident.state = IncidentState::Cleared;
    incident.cleared_at = Some(incident.last_seen.offset(1));
    incident
}

/// Returns true if an incident cleared at `cleared` and seen again at `now` is the same one.
pub fn is_recurrence(cleared: &Incident, now: Nanos, reopen_within_ms: f64) -> bool {
    now.millis_since(cleared.last_seen) <= reopen_within_ms
}
