//! Open incidents of an earlier detector that the replay of its last events has not found again:
//! they began before the replayed events, so that the healthy past of their job is not known.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{DetectorOutput, Incident};

use super::JobKey;
use crate::incident::abandoned;
use crate::iteration_clock::IterationClock;

/// Incidents that stay open, at the cost that is known, until they are found again, the iterations
/// of their job are as fast again as before, or the job ends.
#[derive(Debug, Default)]
pub(super) struct CarriedIncidents {
    open: Vec<Incident>,
    ended: Vec<Incident>,
}

impl CarriedIncidents {
    pub(super) const fn new(open: Vec<Incident>) -> Self {
        Self {
            open,
            ended: Vec::new(),
        }
    }

    /// Leaves those that were found again to whoever adopts them.
    pub(super) fn hand_over(&mut self, mut adopt: impl FnMut(&Incident) -> bool) {
        self.open.retain(|known| !adopt(known));
    }

    /// Ends and returns those whose job has recovered.
    pub(super) fn take_recovered(
        &mut self,
        iterations: &BTreeMap<JobKey, IterationClock>,
    ) -> Vec<Incident> {
        let has_recovered = |known: &mut Incident| {
            let clock = iterations.get(&(known.cluster.clone(), known.job.clone()));
            let Some(now_ms) = clock.and_then(IterationClock::latest_ms) else {
                return false;
            };
            now_ms <= f64::midpoint(known.period_ms, known.baseline.period_ms())
        };
        let recovered = self.open.extract_if(.., has_recovered);
        let recovered: Vec<Incident> = recovered.map(abandoned).collect();
        self.ended.extend_from_slice(&recovered);
        recovered
    }

    /// Removes what was found after its end if it is of the time of one of these: for the detector, their jobs
    /// were slow from the first step on.
    pub(super) fn remove_repeated(&self, output: &mut DetectorOutput) {
        let is_of = |found: &Incident, known: &Incident| {
            (&found.cluster, &found.job) == (&known.cluster, &known.job)
                && found.first_seen <= known.last_seen
        };
        let is_repeated = |found: &&Incident| {
            let is_past = found.cleared_at.is_some_and(|at| at < found.raised_at);
            let mut known = self.open.iter().chain(&self.ended);
            is_past && known.any(|known| is_of(found, known))
        };
        let found = output.incidents.iter().filter(is_repeated);
        let repeated: BTreeSet<IncidentId> = found.map(|found| found.id).collect();
        output.incidents.retain(|one| !repeated.contains(&one.id));
        output.lost.retain(|row| !repeated.contains(&row.incident));
    }

    /// Removes and returns those of unknown jobs.
    pub(super) fn take_orphaned(&mut self, has_job: impl Fn(&JobKey) -> bool) -> Vec<Incident> {
        let is_orphaned =
            |known: &mut Incident| !has_job(&(known.cluster.clone(), known.job.clone()));
        self.open.extract_if(.., is_orphaned).collect()
    }
}
