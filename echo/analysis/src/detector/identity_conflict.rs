//! Incidents about ranks that two nodes report, one incident per job.

use std::collections::BTreeMap;
use std::sync::Arc;

use echo_core::model::detector_output::{
    Baseline, Condition, ConditionKind, Finding, Incident, IncidentState, Severity,
};

use super::JobKey;
use crate::assembly::CohortKey;
use crate::assembly::rank_owners::Conflict;
use crate::incident::{abandoned, incident_id};

/// Maximum number of ranks that a sentence describes; more are only counted.
const NAMED: usize = 4;

/// Subject in the identifiers of these incidents.
const SUBJECT: &str = "Identity";

/// Open conflicts.
#[derive(Debug, Default)]
pub(super) struct IdentityConflicts {
    open: BTreeMap<JobKey, Incident>,
}

impl IdentityConflicts {
    /// Restores conflicts from an earlier detector.
    pub(super) fn restore(&mut self, known: BTreeMap<JobKey, Incident>) {
        self.open = known;
    }

    /// Removes and returns conflicts of unknown jobs.
    pub(super) fn take_orphaned(&mut self, has_job: impl Fn(&JobKey) -> bool) -> Vec<Incident> {
        let gone = self.open.extract_if(.., |job, _| !has_job(job));
        gone.map(|(_, incident)| incident).collect()
    }

    /// Updates the conflicts of a job and returns the incident if it has changed.
    pub(super) fn update(&mut self, job: &JobKey, conflicts: &[Conflict]) -> Option<Incident> {
        let known = self.open.get(job);
        let Some(incident) = incident(job, conflicts, known) else {
            return self.open.remove(job).map(abandoned);
        };
        if known == Some(&incident) {
            return None;
        }
        self.open.insert(job.clone(), incident.clone());
        Some(incident)
    }

    /// Ends the conflicts of a job that does not report any more.
    pub(super) fn end(&mut self, job: &JobKey) -> Option<Incident> {
        self.open.remove(job).map(abandoned)
    }
}

/// Incident for the conflicts of a job; `None` if there are none.
fn incident(job: &JobKey, conflicts: &[Conflict], known: Option<&Incident>) -> Option<Incident> {
    let first_seen = conflicts.iter().map(|one| one.seen.0).min()?;
    let last_seen = conflicts.iter().map(|one| one.seen.1).max()?;
    // A conflict belongs to a job, not to a role.
    let cohort = CohortKey::of_job(job.0.clone(), job.1.clone());
    let begun = u64::try_from(first_seen.value()).unwrap_or_default();
    let detail = describe(conflicts);
    Some(Incident {
        id: known.map_or_else(|| incident_id(&cohort, SUBJECT, begun), |known| known.id),
        cluster: job.0.clone(),
        job: job.1.clone(),
        cohort: Arc::from(cohort.to_string()),
        finding: Finding::Condition(Condition {
            ranks: conflicts.iter().map(|one| one.rank).collect(),
            detail: detail.clone(),
            ..Condition::new(ConditionKind::IdentityConflict)
        }),
        state: IncidentState::Open,
        first_seen: known.map_or(first_seen, |known| known.first_seen),
        last_seen: last_seen.max(first_seen),
        raised_at: known.map_or(last_seen, |known| known.raised_at),
        first_iteration: 0.0,
        raised_iteration: 0.0,
        cleared_iteration: None,
        cleared_at: None,
        is_provisional: false,
        severity: Severity::Warn,
        stability: 1.0,
        occurrences: 1,
        effect_ratio: 0.0,
        period_ms: 0.0,
        baseline: Baseline::None { period_ms: 0.0 },
        confidence: 1.0,
        reason: detail,
        inputs: None,
    })
}

fn describe(conflicts: &[Conflict]) -> String {
    let sentence = |one: &Conflict| {
        format!(
            "rank {} is reported by {}, which was first, and by {}, whose {} points are ignored",
            one.rank, one.owner, one.rival, one.points
        )
    };
    let named: Vec<String> = conflicts.iter().take(NAMED).map(sentence).collect();
    let more = conflicts.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("; and {more} more ranks"));
    format!("{}{}", named.join("; "), more.unwrap_or_default())
}
