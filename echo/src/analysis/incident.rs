//! An incident while it is open: what it is about, how it began, and what was measured since.

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh64::xxh64;

use crate::analysis::assembly::{CohortBlock, CohortKey, PeriodReading};
use crate::analysis::verdict::{Doubt, Suspect, Verdict};
use crate::ids::{IncidentId, NodeId, Rank};
use crate::model::conclusion::{
    Baseline, CauseClass, Condition, ConditionKind, Culprit, Finding, Incident, IncidentState,
    LostTime, Severity,
};
use crate::model::event::Source;
use crate::units::Nanos;

/// What an incident of a cohort is about; there is at most one open incident for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// One rank holds back the others.
    Rank(Rank),
    /// Everybody is slow.
    Uniform,
    /// Nobody knows.
    Unclear(Doubt),
}

/// What a judgement says about one subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Charge {
    /// The subject.
    pub subject: Subject,
    /// The suspect, when the subject is a rank.
    pub suspect: Option<Suspect>,
}

impl Charge {
    /// The charges of a verdict, gravest first.
    pub fn of(verdict: Verdict) -> Vec<Self> {
        match verdict {
            Verdict::Healthy => Vec::new(),
            Verdict::Uniform => vec![Self {
                subject: Subject::Uniform,
                suspect: None,
            }],
            Verdict::Inconclusive(doubt) => {
                vec![Self {
                    subject: Subject::Unclear(doubt),
                    suspect: None,
                }]
            }
            Verdict::Culprits(suspects) => suspects
                .into_iter()
                .map(|suspect| Self {
                    subject: Subject::Rank(suspect.lag.rank),
                    suspect: Some(suspect),
                })
                .collect(),
        }
    }
}

/// An open incident.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenIncident {
    /// Its state as it is reported.
    pub incident: Incident,
    /// Judgements in a row that found nothing any more.
    pub calm: u32,
    period: WeightedMean,
    lag: WeightedMean,
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
        charge: &Charge,
        baseline: Baseline,
        (onset, now): (&CohortBlock, &CohortBlock),
    ) -> Self {
        let subject = charge.subject;
        let incident = Incident {
            id: incident_id(cohort, subject, onset.seqs.first()),
            cluster: cohort.cluster.clone(),
            job: cohort.job.clone(),
            cohort: Arc::from(cohort.to_string()),
            finding: finding(charge),
            state: IncidentState::Open,
            first_seen: onset.time.from(),
            last_seen: now.time.to(),
            raised_at: now.time.to(),
            first_iteration: iteration_at(onset, onset.seqs.first()),
            raised_iteration: end_iteration(now),
            cleared_iteration: None,
            cleared_at: None,
            is_provisional: false,
            severity: Severity::Info,
            stability: 1.0,
            occurrences: 1,
            effect_ratio: 0.0,
            period_ms: baseline.period_ms(),
            baseline,
            confidence: charge
                .suspect
                .as_ref()
                .map_or(0.9, |suspect| suspect.confidence),
            reason: String::new(),
            inputs: None,
        };
        Self {
            incident,
            calm: 0,
            period: WeightedMean::default(),
            lag: WeightedMean::default(),
        }
    }

    /// Opens a cleared incident again.
    pub fn reopen(mut incident: Incident, now: &CohortBlock) -> Self {
        incident.state = IncidentState::Open;
        incident.cleared_iteration = None;
        incident.cleared_at = None;
        incident.occurrences += 1;
        incident.last_seen = now.time.to();
        Self {
            incident,
            calm: 0,
            period: WeightedMean::default(),
            lag: WeightedMean::default(),
        }
    }

    /// Takes in a block that the incident affects; `lag_ms` is the culprit's lag in it.
    pub fn affect(&mut self, block: &CohortBlock, lag_ms: Option<f64>) {
        if let Some(reading) = block.period {
            self.period.add(reading.ms, reading.iterations);
        }
        if let Some(lag_ms) = lag_ms {
            self.lag.add(lag_ms, block.iterations);
        }
        let incident = &mut self.incident;
        incident.last_seen = incident.last_seen.max(block.time.to());
        let healthy = incident.baseline.period_ms();
        if let Some(period_ms) = self.period.value() {
            incident.period_ms = period_ms;
            incident.effect_ratio = (period_ms - healthy) / healthy;
        }
        if let (Finding::Culprit(culprit), Some(lag_ms)) = (&mut incident.finding, self.lag.value())
        {
            culprit.lag_ms = lag_ms;
        }
        self.explain();
    }

    /// Takes over a stronger case against the same culprit.
    pub fn strengthen(&mut self, suspect: &Suspect) {
        if let Finding::Culprit(culprit) = &mut self.incident.finding
            && suspect.z > culprit.z
        {
            culprit.z = suspect.z;
            culprit.signal = suspect.lag.signal;
            self.incident.confidence = self.incident.confidence.max(suspect.confidence);
        }
    }

    /// Closes the incident at the end of `now`.
    pub fn clear(mut self, now: &CohortBlock) -> Incident {
        self.incident.state = IncidentState::Cleared;
        self.incident.cleared_iteration = Some(end_iteration(now));
        self.incident.cleared_at = Some(now.time.to());
        self.incident
    }

    fn explain(&mut self) {
        let incident = &self.incident;
        let (healthy, period) = (incident.baseline.period_ms(), incident.period_ms);
        let loss = format!("an iteration takes {period:.1} ms instead of {healthy:.1} ms");
        self.incident.reason = match &incident.finding {
            Finding::Culprit(culprit) => format!(
                "rank {} comes {:.1} ms later than the median of its peers ({}), and {loss}",
                culprit.rank,
                culprit.lag_ms,
                culprit.signal.meaning(),
            ),
            Finding::Condition(condition) => match condition.kind {
                ConditionKind::Inconclusive => format!("{loss}, but {}", condition.detail),
                _ => format!(
                    "{loss} on every rank and no rank is late on its host: the GPUs, the network or the input slowed down"
                ),
            },
        };
    }
}

fn finding(charge: &Charge) -> Finding {
    match (charge.subject, &charge.suspect) {
        (Subject::Rank(rank), Some(suspect)) => Finding::Culprit(Culprit {
            rank,
            node: NodeId::clone(&suspect.lag.origin.node),
            gpu_uuid: suspect.lag.origin.gpu_uuid.clone(),
            class: CauseClass::Host,
            signal: suspect.lag.signal,
            lag_ms: suspect.lag.mean_ms,
            z: suspect.z,
            source: Source::Host,
            victims: Vec::new(),
        }),
        (Subject::Unclear(doubt), _) => Finding::Condition(Condition {
            detail: doubt.reason().to_owned(),
            ..Condition::of(ConditionKind::Inconclusive)
        }),
        (Subject::Uniform | Subject::Rank(_), _) => {
            Finding::Condition(Condition::of(ConditionKind::UniformSlowdown))
        }
    }
}

fn incident_id(cohort: &CohortKey, subject: Subject, first_seq: u64) -> IncidentId {
    let text = format!("{}|{cohort}|{subject:?}|{first_seq}", cohort.cluster);
    IncidentId::new(xxh64(text.as_bytes(), 0))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sequence numbers stay far below 2^53"
)]
fn iteration_at(block: &CohortBlock, seq: u64) -> f64 {
    let n_ops = (block.seqs.last() - block.seqs.first() + 1) as f64;
    seq as f64 * block.iterations / n_ops
}

/// Iterations from the first operation of the communicator to the end of the block.
pub fn end_iteration(block: &CohortBlock) -> f64 {
    iteration_at(block, block.seqs.last() + 1)
}

/// GPU time that the cohort lost in one reading, a row per node and GPU model.
pub fn lost_time(
    incident: &Incident,
    block: &CohortBlock,
    reading: &PeriodReading,
) -> Vec<LostTime> {
    let mut groups: BTreeMap<(NodeId, Option<Arc<str>>), u32> = BTreeMap::new();
    for member in &block.members {
        let group = (member.origin.node.clone(), member.origin.gpu_model.clone());
        *groups.entry(group).or_default() += 1;
    }
    let lost_per_rank = (reading.ms - incident.baseline.period_ms()) * reading.iterations;
    groups
        .into_iter()
        .map(|((node, gpu_model), n_ranks)| LostTime {
            incident: incident.id,
            cluster: incident.cluster.clone(),
            node,
            gpu_model,
            interval: reading.interval,
            n_ranks,
            iterations: reading.iterations,
            lost_gpu_ms: lost_per_rank * f64::from(n_ranks),
        })
        .collect()
}

/// Whether an incident cleared at `cleared` and seen again at `now` is the same one.
pub fn is_recurrence(cleared: &Incident, now: Nanos, reopen_within_ms: f64) -> bool {
    now.millis_since(cleared.last_seen) <= reopen_within_ms
}
