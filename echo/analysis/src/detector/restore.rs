//! Restoring of incidents from an earlier detector to the cohorts that continue them.
//!
//! A cohort can continue an incident once it has received a block. Until then the incident is
//! pending; it is ended only when no rank of its job has reported although agents had time to
//! reconnect.

use std::collections::BTreeMap;

use echo_core::ids::CommId;
use echo_core::model::detector_output::{DetectorOutput, Incident, IncidentState};
use echo_core::units::Nanos;

use super::stragglers::Stragglers;
use super::{Detector, JobKey};
use crate::assembly::CohortKey;
use crate::cohort::Cohort;
use crate::finding::Subject;
use crate::incident::abandoned;

/// Incidents that have not been restored yet.
#[derive(Debug, Default)]
pub(super) struct PendingRestore {
    /// Earliest start of a pending incident by job, event time.
    bad_since: BTreeMap<JobKey, Nanos>,
    waiting: BTreeMap<CohortKey, Vec<Incident>>,
}

impl PendingRestore {
    /// Creates the cohort for a first block.
    pub(super) fn cohort(&self, key: &CohortKey) -> Cohort {
        let job = (key.cluster.clone(), key.job.clone());
        match self.bad_since.get(&job) {
            Some(since) => Cohort::known_bad(key.clone(), *since),
            None => Cohort::new(key.clone()),
        }
    }

    /// Restores pending incidents into the cohort once it can continue them.
    pub(super) fn restore_into(&mut self, key: &CohortKey, cohort: &mut Cohort) -> Vec<Incident> {
        if self.waiting.is_empty() || !cohort.has_begun() {
            return Vec::new();
        }
        let waiting = self.waiting.remove(key);
        waiting.map_or_else(Vec::new, |waiting| cohort.restore(waiting))
    }

    /// Removes and returns pending incidents of unknown jobs.
    pub(super) fn take_orphaned(&mut self, has_job: impl Fn(&JobKey) -> bool) -> Vec<Incident> {
        let gone = self.waiting.extract_if(.., |key, _| {
            !has_job(&(key.cluster.clone(), key.job.clone()))
        });
        gone.flat_map(|(_, incidents)| incidents).collect()
    }
}

impl Detector {
    /// Prepares for a replay of the events of jobs with these open incidents: disturbed periods
    /// must not count as healthy.
    pub fn prepare_restore(&mut self, open: &[Incident]) {
        for incident in open {
            let job = (incident.cluster.clone(), incident.job.clone());
            if CohortKey::from_incident(incident).is_some_and(|key| Stragglers::is_own(&key)) {
                self.stragglers.take_over(&job);
            }
            let since = self.pending_restore.bad_since.entry(job);
            let since = since.or_insert(incident.first_seen);
            *since = (*since).min(incident.first_seen);
        }
    }

    /// Restores incidents after their events have been replayed, replacing those found during the
    /// replay. For `reconnect_ms` after `listening_since`, arrival time, no rank is reported as
    /// hanging: agents need that long to report again.
    pub fn restore(
        &mut self,
        known: Vec<Incident>,
        listening_since: Nanos,
        reconnect_ms: f64,
    ) -> DetectorOutput {
        (self.last_hang_check, self.next_hang_check_ms) = (listening_since, reconnect_ms);
        self.pending_restore = PendingRestore::default();
        let settled_until = settled_until(&known);
        let (mut hangs, mut conflicts) = (BTreeMap::new(), BTreeMap::new());
        let (mut unknown, mut of_jobs) = (Vec::new(), Vec::new());
        for incident in known {
            match CohortKey::from_incident(&incident) {
                Some(key) if Subject::from_finding(&incident.finding) == Some(Subject::Hang) => {
                    let job = (key.cluster, key.job);
                    if incident.state == IncidentState::Open {
                        // The communicator takes the place of the cohort in its key.
                        hangs.insert((job, CommId::new(key.role.value())), incident);
                    }
                }
                Some(key)
                    if Subject::from_finding(&incident.finding) == Some(Subject::Identity) =>
                {
                    if incident.state == IncidentState::Open {
                        conflicts.insert((key.cluster, key.job), incident);
                    }
                }
                Some(key) if Stragglers::is_own(&key) => {
                    if incident.state == IncidentState::Open {
                        of_jobs.push(incident);
                    }
                }
                Some(key) => self
                    .pending_restore
                    .waiting
                    .entry(key)
                    .or_default()
                    .push(incident),
                None => unknown.push(incident),
            }
        }
        self.hang_tracker.restore(hangs);
        self.identity_conflicts.restore(conflicts);
        for (key, cohort) in &mut self.cohorts {
            let job = (key.cluster.clone(), key.job.clone());
            cohort.settle(settled_until.get(&job).copied().unwrap_or(0.0));
            if cohort.has_begun() {
                let known = self.pending_restore.waiting.remove(key);
                unknown.extend(cohort.restore(known.unwrap_or_default()));
            }
        }
        let mut output = ended(unknown);
        output.append(self.stragglers.restore(of_jobs));
        output
    }

    /// Ends pending incidents of jobs that no rank reports.
    pub(super) fn end_waiting(&mut self) -> DetectorOutput {
        let assembly = &self.assembly;
        let mut gone = self
            .pending_restore
            .take_orphaned(|job| assembly.has_job(job));
        gone.extend(self.hang_tracker.take_orphaned(|job| assembly.has_job(job)));
        gone.extend(
            self.identity_conflicts
                .take_orphaned(|job| assembly.has_job(job)),
        );
        ended(gone)
    }
}

/// Last iteration of cleared incidents, by job.
fn settled_until(known: &[Incident]) -> BTreeMap<JobKey, f64> {
    let mut settled: BTreeMap<JobKey, f64> = BTreeMap::new();
    for incident in known {
        let until = settled
            .entry((incident.cluster.clone(), incident.job.clone()))
            .or_default();
        *until = until.max(incident.cleared_iteration.unwrap_or(0.0));
    }
    settled
}

/// Ends the open ones.
pub(super) fn ended(incidents: Vec<Incident>) -> DetectorOutput {
    let open = incidents.into_iter();
    let open = open.filter(|incident| incident.state == IncidentState::Open);
    DetectorOutput {
        incidents: open.map(abandoned).collect(),
        ..DetectorOutput::default()
    }
}
