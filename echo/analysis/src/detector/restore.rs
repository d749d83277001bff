//! Restoring of incidents from an earlier detector.

use std::collections::BTreeMap;

use echo_core::ids::CommId;
use echo_core::model::detector_output::{
    ConditionKind, DetectorOutput, Finding, Incident, IncidentState,
};
use echo_core::units::Nanos;

use super::Detector;
use super::stragglers::Stragglers;
use crate::assembly::CohortKey;
use crate::incident::abandoned;

impl Detector {
    /// Restores open incidents after their events have been replayed, replacing those found during
    /// the replay. For `reconnect_ms` after `listening_since`, arrival time, no rank is reported as
    /// hanging: agents need that long to report again.
    pub fn restore(
        &mut self,
        known: Vec<Incident>,
        listening_since: Nanos,
        reconnect_ms: f64,
    ) -> DetectorOutput {
        (self.last_hang_check, self.next_hang_check_ms) = (listening_since, reconnect_ms);
        let (mut hangs, mut conflicts) = (BTreeMap::new(), BTreeMap::new());
        let (mut unknown, mut stragglers) = (Vec::new(), Vec::new());
        let open = known.into_iter();
        for incident in open.filter(|incident| incident.state == IncidentState::Open) {
            let Some(key) = CohortKey::from_incident(&incident) else {
                unknown.push(incident);
                continue;
            };
            match kind(&incident) {
                Some(kind) if kind.is_hang() => {
                    // The communicator takes the place of the cohort in its key.
                    let comm = CommId::new(key.role.value());
                    hangs.insert((key.cluster, key.job), (comm, incident));
                }
                Some(ConditionKind::IdentityConflict) => {
                    conflicts.insert((key.cluster, key.job), incident);
                }
                _ if Stragglers::is_own(&key) => stragglers.push(incident),
                _ => unknown.push(incident),
            }
        }
        self.hang_tracker.restore(hangs);
        self.identity_conflicts.restore(conflicts);
        self.stragglers.restore(stragglers);
        ended(unknown)
    }

    /// Ends incidents of jobs that no rank reports.
    pub(super) fn end_waiting(&mut self) -> DetectorOutput {
        let assembly = &self.assembly;
        let mut gone = self.hang_tracker.take_orphaned(|job| assembly.has_job(job));
        gone.extend(
            self.identity_conflicts
                .take_orphaned(|job| assembly.has_job(job)),
        );
        gone.extend(self.stragglers.take_orphaned(|job| assembly.has_job(job)));
        ended(gone)
    }
}

const fn kind(incident: &Incident) -> Option<ConditionKind> {
    match &incident.finding {
        Finding::Condition(condition) => Some(condition.kind),
        Finding::Culprit(_) => None,
    }
}

fn ended(open: Vec<Incident>) -> DetectorOutput {
    DetectorOutput {
        incidents: open.into_iter().map(abandoned).collect(),
        ..DetectorOutput::default()
    }
}
