//! Incidents of one job as they were published last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use echo_core::ids::{IncidentId, Rank};
use echo_core::model::detector_output::{
    Baseline, CauseClass, Condition, ConditionKind, Culprit, DetectorOutput, Finding, Incident,
    IncidentState, LostTime, Signal,
};
use echo_core::model::event::{Origin, Source};
use echo_core::units::Nanos;

use super::JobKey;
use super::job_context::JobContext;
use super::lost_time::{ByInterval, by_interval, lost, outside, rows};
use super::wording::{Periods, reason};
use crate::assembly::CohortKey;
use crate::incident::{abandoned, severity};
use crate::straggler::Report;
use crate::straggler::class::Class;
use crate::straggler::incident::{Finding as Found, Incident as FoundIncident, RankOfJob};

/// Confidence of an incident for which pace and waiting agree, of one that only the pace shows, and
/// of one that only the waiting shows.
const AGREED: f64 = 0.95;
const ONLY_PACE: f64 = 0.9;
const ONLY_WAITING: f64 = 0.7;

/// Least share of an incident's loss that is outside of hangs: one with less is only the hang.
const LEAST_OUTSIDE: f64 = 0.1;

/// Stands for the duration of an iteration where a job has none, milliseconds: figures per iteration
/// are then figures per second.
const WITHOUT_ITERATIONS_MS: f64 = 1e3;

/// Published incidents of a job.
#[derive(Debug)]
pub(super) struct PublishedJob {
    key: CohortKey,
    open: BTreeMap<u64, Published>,
}

/// Last state of an open incident, and its rows of lost time.
#[derive(Debug)]
struct Published {
    incident: Incident,
    lost: ByInterval,
}

impl PublishedJob {
    pub(super) fn new(key: CohortKey) -> Self {
        Self {
            key,
            open: BTreeMap::new(),
        }
    }

    pub(super) fn is_of(&self, job: &JobKey) -> bool {
        self.key.cluster == job.0 && self.key.job == job.1
    }

    /// Ranks that open incidents name.
    pub(super) fn named(&self) -> impl Iterator<Item = Rank> {
        self.culprits().map(|(rank, _)| rank)
    }

    /// The job and the time of its latest verdict, if an open incident names a rank.
    pub(super) fn naming(&self) -> Option<(JobKey, Nanos)> {
        let latest = self.culprits().map(|(_, at)| at).max()?;
        Some(((self.key.cluster.clone(), self.key.job.clone()), latest))
    }

    fn culprits(&self) -> impl Iterator<Item = (Rank, Nanos)> {
        let open = self.open.values();
        open.filter_map(|published| match &published.incident.finding {
            Finding::Culprit(culprit) => Some((culprit.rank, published.incident.last_seen)),
            Finding::Condition(_) => None,
        })
    }

    /// Publishes what is known of the job now.
    pub(super) fn update(&mut self, context: &JobContext<'_>, report: &Report) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        let mut seen = BTreeSet::new();
        for found in &report.incidents {
            // Of a hang the pace knows as well, but its time is lost once.
            let pieces = outside(&found.pieces, &context.hung);
            if lost(&pieces) < LEAST_OUTSIDE * lost(&found.pieces) {
                continue;
            }
            let known = self.open.get(&found.number);
            let Some(mut incident) = incident(context, found) else {
                continue;
            };
            seen.insert(found.number);
            if let Some(known) = known {
                keep_identity(&mut incident, &known.incident);
            }
            let none = ByInterval::new();
            let before = known.map_or(&none, |known| &known.lost);
            let lost = by_interval(&pieces);
            output
                .lost
                .extend(rows(context, found, (incident.id, before, &lost)));
            if known.is_none_or(|known| known.incident != incident) {
                output.incidents.push(incident.clone());
            }
            if incident.state == IncidentState::Open {
                self.open.insert(found.number, Published { incident, lost });
            } else {
                self.open.remove(&found.number);
            }
        }
        let withdrawn = self.open.extract_if(.., |number, _| !seen.contains(number));
        for (_, published) in withdrawn {
            output.lost.extend(nothing_lost(context, &published));
            output.incidents.push(abandoned(published.incident));
        }
        output
    }

    /// Continues an incident of an earlier detector; returns false if nothing of the kind is open.
    pub(super) fn adopt(&mut self, earlier: &Incident) -> bool {
        if self.key.cluster != earlier.cluster || self.key.job != earlier.job {
            return false;
        }
        let mut open = self.open.values_mut();
        let same = open.find(|own| is_same_subject(&own.incident.finding, &earlier.finding));
        let Some(own) = same else { return false };
        keep_identity(&mut own.incident, earlier);
        true
    }

    /// Ends all incidents.
    pub(super) fn end(&mut self) -> DetectorOutput {
        let open = std::mem::take(&mut self.open).into_values();
        DetectorOutput {
            incidents: open.map(|own| abandoned(own.incident)).collect(),
            ..DetectorOutput::default()
        }
    }
}

/// Keeps what does not change while an incident is open.
fn keep_identity(incident: &mut Incident, known: &Incident) {
    incident.id = known.id;
    let inputs = &known.inputs;
    // Iterations of instants that the clock had not reached are told better later.
    if known.first_seen < incident.first_seen {
        incident.first_seen = known.first_seen;
        incident.first_iteration = known.first_iteration;
    }
    if known.raised_at != incident.raised_at {
        incident.raised_at = known.raised_at;
        incident.raised_iteration = known.raised_iteration;
    }
    if let (Finding::Culprit(now), Finding::Culprit(known)) =
        (&mut incident.finding, &known.finding)
    {
        // The strongest evidence counts, not that of the time after the fault.
        if known.z >= now.z {
            now.z = known.z;
            incident.inputs.clone_from(inputs);
        }
        if now.class == CauseClass::Inconclusive {
            now.class = known.class;
        }
    }
}

fn is_same_subject(one: &Finding, other: &Finding) -> bool {
    match (one, other) {
        (Finding::Culprit(one), Finding::Culprit(other)) => one.rank == other.rank,
        (Finding::Condition(one), Finding::Condition(other)) => {
            (one.kind, &one.node) == (other.kind, &other.node)
        }
        (Finding::Culprit(_), Finding::Condition(_))
        | (Finding::Condition(_), Finding::Culprit(_)) => false,
    }
}

/// Rows that set the loss of a withdrawn incident to zero.
fn nothing_lost(context: &JobContext<'_>, published: &Published) -> Vec<LostTime> {
    let nothing = FoundIncident {
        number: 0,
        finding: Found::UniformSlowdown,
        class: Class::Unknown,
        since: published.incident.first_seen,
        known: published.incident.raised_at,
        until: published.incident.last_seen,
        is_closed: true,
        lost_gpu_s: 0.0,
        loss: 0.0,
        waited_ms_per_s: 0.0,
        late_ms: 0.0,
        pieces: Vec::new(),
    };
    let rows_of = (published.incident.id, &published.lost, &ByInterval::new());
    rows(context, &nothing, rows_of)
}

/// Incident as it is published; `None` for a stall, which is found from the progress of the ranks.
fn incident(context: &JobContext<'_>, found: &FoundIncident) -> Option<Incident> {
    let periods = periods(context, found);
    let current_ms = periods.map_or(WITHOUT_ITERATIONS_MS, |periods| periods.current_ms);
    let usual_ms = periods.map_or(current_ms * (1.0 - found.loss), |periods| periods.usual_ms);
    let (finding, subject) = finding(context, found, current_ms)?;
    let effect_ratio = found.loss / (1.0 - found.loss).max(0.01);
    let iteration = |at| context.iterations.map_or(0.0, |clock| clock.at(at));
    let state = if found.is_closed {
        IncidentState::Cleared
    } else {
        IncidentState::Open
    };
    let end = found.is_closed.then_some(found.until);
    // The comparison is of the latest evaluation.
    let is_culprit = matches!(finding, Finding::Culprit(_)) && !was_found_afterwards(found);
    let inputs = context.compared().filter(|_| is_culprit);
    Some(Incident {
        id: id(&context.key, &subject, found),
        cluster: context.key.cluster.clone(),
        job: context.key.job.clone(),
        cohort: Arc::from(context.key.to_string()),
        finding,
        state,
        first_seen: found.since,
        last_seen: found.until,
        raised_at: found.known,
        first_iteration: iteration(found.since),
        raised_iteration: iteration(found.known),
        cleared_iteration: end.map(iteration),
        cleared_at: end.map(|end| end.offset(1)),
        is_provisional: matches!(found.finding, Found::LateWithoutPast(_)),
        severity: severity(effect_ratio),
        stability: stability(found),
        occurrences: 1,
        effect_ratio,
        period_ms: current_ms,
        baseline: baseline(found, usual_ms),
        confidence: confidence(found),
        reason: reason(found, (&subject, context.source), periods),
        inputs: inputs.map(Arc::new),
    })
}

fn baseline(found: &FoundIncident, period_ms: f64) -> Baseline {
    match &found.finding {
        Found::LateWithoutPast(_) => Baseline::None { period_ms },
        Found::Rank(_) | Found::Node(..) | Found::UniformSlowdown | Found::Stall(_) => {
            Baseline::History { period_ms }
        }
    }
}

const fn confidence(found: &FoundIncident) -> f64 {
    match &found.finding {
        Found::LateWithoutPast(_) => ONLY_WAITING,
        Found::UniformSlowdown => ONLY_PACE,
        Found::Rank(_) | Found::Node(..) | Found::Stall(_) => AGREED,
    }
}

/// Share of the time since the beginning in which there was a loss.
fn stability(found: &FoundIncident) -> f64 {
    let pieces = found.pieces.iter();
    let lost_ms: f64 = pieces.map(|piece| piece.to.millis_since(piece.from)).sum();
    (lost_ms / found.until.millis_since(found.since).max(1.0)).min(1.0)
}

/// Returns true if the incident had ended when it was found.
fn was_found_afterwards(found: &FoundIncident) -> bool {
    found.known > found.until
}

/// Usual and current duration of an iteration. The loss gives the one that is not measured.
fn periods(context: &JobContext<'_>, found: &FoundIncident) -> Option<Periods> {
    let clock = context.iterations?;
    let pace = (1.0 - found.loss).max(0.01);
    let measured = if was_found_afterwards(found) {
        clock.period_since(found.until)
    } else {
        clock.period_before(found.since)
    };
    let usual_ms = measured.or_else(|| Some(clock.period_since(found.since)? * pace))?;
    Some(Periods {
        usual_ms,
        current_ms: usual_ms / pace,
    })
}

fn finding(
    context: &JobContext<'_>,
    found: &FoundIncident,
    current_ms: f64,
) -> Option<(Finding, String)> {
    match &found.finding {
        Found::Rank(rank) | Found::LateWithoutPast(rank) => {
            let origin = context.origins.get(&rank.process)?;
            let culprit = culprit(context, found, (rank, origin), current_ms)?;
            let subject = format!("rank {}", culprit.rank);
            Some((Finding::Culprit(culprit), subject))
        }
        Found::Node(_, ranks) => {
            let node = &context.origins.get(&ranks.first()?.process)?.node;
            let condition = Condition {
                node: Some(node.clone()),
                ranks: context.named(&found.finding).into_iter().collect(),
                ..Condition::new(ConditionKind::LateNode)
            };
            Some((
                Finding::Condition(condition),
                format!("the ranks of node {node}"),
            ))
        }
        Found::UniformSlowdown => {
            let kind = if found.class == Class::Network {
                ConditionKind::Network
            } else {
                ConditionKind::UniformSlowdown
            };
            Some((
                Finding::Condition(Condition::new(kind)),
                kind.name().to_owned(),
            ))
        }
        Found::Stall(_) => None,
    }
}

fn culprit(
    context: &JobContext<'_>,
    found: &FoundIncident,
    (rank, origin): (&RankOfJob, &Origin),
    current_ms: f64,
) -> Option<Culprit> {
    let peers = context.peers.iter().flat_map(|peers| &peers.ranks);
    let mut own = peers.filter(|peer| peer.rank.process == rank.process);
    Some(Culprit {
        rank: origin.rank?.rank(),
        node: origin.node.clone(),
        gpu_uuid: origin.gpu_uuid.clone(),
        class: context.class(found, rank),
        signal: match context.source {
            Source::Host => Signal::Wait,
            Source::Device => Signal::DeviceWait,
        },
        lag_ms: found.waited_ms_per_s / 1e3 * current_ms,
        z: own
            .next()
            .filter(|_| !was_found_afterwards(found))
            .and_then(|peer| peer.z)
            .unwrap_or(0.0),
        source: context.source,
    })
}

/// Identity of an incident. The same events always give the same one.
fn id(key: &CohortKey, subject: &str, found: &FoundIncident) -> IncidentId {
    let since = found.since.value();
    let text = format!("{}|{key}|{subject}|{since}", key.cluster);
    IncidentId::from_description(&text)
}
