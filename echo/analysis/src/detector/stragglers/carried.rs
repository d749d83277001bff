//! Open incidents of an earlier detector that the replay of its last events has not found again:
//! they began before the replayed events, so that the healthy past of their job is not known.

use std::collections::BTreeMap;

use echo_core::model::detector_output::Incident;

use super::JobKey;
use crate::incident::abandoned;
use crate::iteration_clock::IterationClock;

/// Incidents that stay open, at the cost that is known, until they are found again, the iterations
/// of their job are as fast again as before, or the job ends.
#[derive(Debug, Default)]
pub(super) struct CarriedIncidents(Vec<Incident>);

impl CarriedIncidents {
    pub(super) const fn new(incidents: Vec<Incident>) -> Self {
        Self(incidents)
    }

    /// Leaves those that were found again to whoever adopts them.
    pub(super) fn hand_over(&mut self, mut adopt: impl FnMut(&Incident) -> bool) {
        self.0.retain(|known| !adopt(known));
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
        let recovered = self.0.extract_if(.., has_recovered);
        recovered.map(abandoned).collect()
    }

    /// Removes and returns those of unknown jobs.
    pub(super) fn take_orphaned(&mut self, has_job: impl Fn(&JobKey) -> bool) -> Vec<Incident> {
        let is_orphaned =
            |known: &mut Incident| !has_job(&(known.cluster.clone(), known.job.clone()));
        self.0.extract_if(.., is_orphaned).collect()
    }
}
