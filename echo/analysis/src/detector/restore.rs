//! Incidents that an earlier detector concluded, on their way to the cohorts that go on with them.
//!
//! A cohort can go on with an incident once it has seen a block. Until then the incident waits; it is ended only when nobody of
//! its job has reported although agents had the time to come back.

use std::collections::BTreeMap;

use echo_core::ids::CommId;
use echo_core::model::detector_output::{DetectorOutput, Incident, IncidentState};
use echo_core::units::Nanos;

use super::{Detector, JobKey};
use crate::assembly::CohortKey;
use crate::cohort::Cohort;
use crate::finding::Subject;
use crate::incident::abandoned;

/// What is yet to be handed over.
#[derive(Debug, Default)]
pub(super) struct PendingRestore {
    /// Since when jobs have an incident that is yet to be adopted, event time.
    bad_since: BTreeMap<JobKey, Nanos>,
    waiting: BTreeMap<CohortKey, Vec<Incident>>,
}

impl PendingRestore {
    /// A cohort of which the first block has come.
    pub(super) fn cohort(&self, key: &CohortKey) -> Cohort {
        let job = (key.cluster.clone(), key.job.clone());
        match self.bad_since.get(&job) {
            Some(since) => Cohort::known_bad(key.clone(), *since),
            None => Cohort::new(key.clone()),
        }
    }

    /// Gives the cohort what waits for it, once it can go on with that.
    pub(super) fn restore_into(&mut self, key: &CohortKey, cohort: &mut Cohort) -> Vec<Incident> {
        if self.waiting.is_empty() || !cohort.has_begun() {
            return Vec::new();
        }
        let waiting = self.waiting.remove(key);
        waiting.map_or_else(Vec::new, |waiting| cohort.restore(waiting))
    }

    /// What waits for cohorts of jobs that nothing is known of.
    pub(super) fn take_orphaned(&mut self, has_job: impl Fn(&JobKey) -> bool) -> Vec<Incident> {
        let gone = self.waiting.extract_if(.., |key, _| {
            !has_job(&(key.cluster.clone(), key.job.clone()))
        });
        gone.flat_map(|(_, incidents)| incidents).collect()
    }
}

impl Detector {
    /// Prepares for taking again the events of jobs in which these incidents are open: what was bad must not pass for
    /// healthy.
    pub fn prepare_restore(&mut self, open: &[Incident]) {
        for incident in open {
            let job = (incident.cluster.clone(), incident.job.clone());
            let since = self.pending_restore.bad_since.entry(job);
            let since = since.or_insert(incident.first_seen);
            *since = (*since).min(incident.first_seen);
        }
    }

    /// Goes on with incidents as they were concluded before, after their events have been taken again, in place of whatever
    /// was found meanwhile. For so long after `listening`, arrival time, nobody is taken for stuck: it takes that long until
    /// everybody has reported again.
    pub fn restore(
        &mut self,
        known: Vec<Incident>,
        (listening, come_back_ms): (Nanos, f64),
    ) -> DetectorOutput {
        (self.looked_at, self.look_after_ms) = (listening, come_back_ms);
        self.pending_restore = PendingRestore::default();
        let settled_until = settled_until(&known);
        let (mut hangs, mut conflicts) = (BTreeMap::new(), BTreeMap::new());
        let mut strange = Vec::new();
        for incident in known {
            match CohortKey::from_incident(&incident) {
                Some(key) if Subject::from_finding(&incident.finding) == Some(Subject::Hang) => {
                    let job = (key.cluster, key.job);
                    if incident.state == IncidentState::Open {
                        // Its place among the cohorts is taken by its communicator.
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
                Some(key) => self
                    .pending_restore
                    .waiting
                    .entry(key)
                    .or_default()
                    .push(incident),
                None => strange.push(incident),
            }
        }
        self.hang_tracker.restore(hangs);
        self.identity_conflicts.restore(conflicts);
        for (key, cohort) in &mut self.cohorts {
            let job = (key.cluster.clone(), key.job.clone());
            cohort.settle(settled_until.get(&job).copied().unwrap_or(0.0));
            if cohort.has_begun() {
                let known = self.pending_restore.waiting.remove(key);
                strange.extend(cohort.restore(known.unwrap_or_default()));
            }
        }
        ended(strange)
    }

    /// Ends what waits for jobs that nobody reports of.
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

/// Up to which iteration incidents of a job have ended.
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

/// The end of those that are open.
pub(super) fn ended(incidents: Vec<Incident>) -> DetectorOutput {
    let open = incidents.into_iter();
    let open = open.filter(|incident| incident.state == IncidentState::Open);
    DetectorOutput {
        incidents: open.map(abandoned).collect(),
        ..DetectorOutput::default()
    }
}
