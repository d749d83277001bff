//! Operations that never end, as incidents.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::JobKey;
use crate::analysis::assembly::CohortKey;
use crate::analysis::assembly::progress::Progress;
use crate::analysis::charge::Subject;
use crate::analysis::hang::{Hang, hangs};
use crate::analysis::incident::{abandoned, incident_id};
use crate::ids::{CommId, Rank, RoleId};
use crate::model::conclusion::{
    Baseline, Conclusions, Condition, ConditionKind, Finding, Incident, IncidentState, Severity,
};
use crate::units::Nanos;

/// How sure it is that an operation hangs of which some ranks are missing.
const CONFIDENCE: f64 = 0.95;

/// Ranks that a sentence names before it only counts them.
const NAMED: usize = 8;

/// Hangs that go on.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    open: BTreeMap<(JobKey, CommId), Incident>,
}

impl Stuck {
    /// Goes on with hangs as they were concluded before, in place of those found in reading their events again.
    pub(super) fn adopt(&mut self, known: BTreeMap<(JobKey, CommId), Incident>) {
        self.open = known;
    }

    /// Hangs of jobs that nothing is known of.
    pub(super) fn give_up(&mut self, has_job: impl Fn(&JobKey) -> bool) -> Vec<Incident> {
        let gone = self.open.extract_if(.., |(job, _), _| !has_job(job));
        gone.map(|(_, incident)| incident).collect()
    }

    /// Looks at a job's progress at an instant of arrival time.
    pub(super) fn look(
        &mut self,
        job: &JobKey,
        progress: &Progress,
        now: Nanos,
        patience_ms: f64,
    ) -> Conclusions {
        let mut conclusions = Conclusions::default();
        let found = hangs(progress, now, patience_ms);
        for hang in &found {
            let key = (job.clone(), hang.comm);
            let known = self.open.get(&key);
            let incident = incident(job, hang, known);
            if known != Some(&incident) {
                conclusions.incidents.push(incident.clone());
                self.open.insert(key, incident);
            }
        }
        let hangs_on = |comm: CommId| found.iter().any(|hang| hang.comm == comm);
        let over = self
            .open
            .extract_if(.., |(of, comm), _| of == job && !hangs_on(*comm));
        conclusions
            .incidents
            .extend(over.map(|(_, incident)| abandoned(incident)));
        conclusions
    }

    /// Ends what is open in a job that does not report any more.
    pub(super) fn end(&mut self, job: &JobKey) -> Conclusions {
        let mut conclusions = Conclusions::default();
        let over = self.open.extract_if(.., |(of, _), _| of == job);
        conclusions
            .incidents
            .extend(over.map(|(_, incident)| abandoned(incident)));
        conclusions
    }
}

fn incident(job: &JobKey, hang: &Hang, known: Option<&Incident>) -> Incident {
    // A hang is of a communicator, not of a role: its place among the cohorts is taken by the communicator.
    let cohort = CohortKey {
        cluster: job.0.clone(),
        job: job.1.clone(),
        role: RoleId::new(hang.comm.value()),
    };
    let detail = told(hang);
    Incident {
        id: known.map_or_else(
            || incident_id(&cohort, Subject::Hang, hang.seq),
            |known| known.id,
        ),
        cluster: job.0.clone(),
        job: job.1.clone(),
        cohort: Arc::from(cohort.to_string()),
        finding: Finding::Condition(Condition {
            kind: ConditionKind::Hang,
            ranks: hang.missing.clone(),
            detail: detail.clone(),
        }),
        state: IncidentState::Open,
        first_seen: hang.since,
        last_seen: hang.last_heard.max(hang.since),
        raised_at: known.map_or_else(|| hang.last_heard.max(hang.since), |known| known.raised_at),
        first_iteration: 0.0,
        raised_iteration: 0.0,
        cleared_iteration: None,
        cleared_at: None,
        is_provisional: false,
        severity: Severity::Critical,
        stability: 1.0,
        occurrences: 1,
        effect_ratio: 0.0,
        period_ms: 0.0,
        // No iteration ends, so there is none to compare; what the wait costs is not known from periods.
        baseline: Baseline::None { period_ms: 0.0 },
        confidence: CONFIDENCE,
        reason: detail,
        inputs: None,
    }
}

fn told(hang: &Hang) -> String {
    let mut told = format!(
        "{} of {} ranks entered operation {} of communicator {} and it does not end: missing {}",
        hang.entered.len(),
        hang.entered.len() + hang.missing.len(),
        hang.seq,
        hang.comm,
        list(&hang.missing),
    );
    if !hang.silent.is_empty() {
        let silent = list(&hang.silent);
        told.push_str("; no sign of life since then of ");
        told.push_str(&silent);
    }
    if !hang.unknown.is_empty() {
        let unknown = list(&hang.unknown);
        told.push_str("; not counted, because not reporting since before that: ");
        told.push_str(&unknown);
    }
    told
}

fn list(ranks: &[Rank]) -> String {
    let names: Vec<String> = ranks.iter().take(NAMED).map(ToString::to_string).collect();
    let more = ranks.len().saturating_sub(NAMED);
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    if more > 0 {
        format!("{noun} {} and {more} more", names.join(", "))
    } else {
        format!("{noun} {}", names.join(", "))
    }
}
