//! The detector: events in, conclusions out.
//!
//! It is a function of the stored events alone. The same events give the same conclusions, at whatever speed and in
//! whatever order the ranks' messages arrived; only that a rank is silent is measured in arrival time. Live detection
//! and a replay of history are one code.

use std::collections::BTreeMap;

use crate::analysis::assembly::{Assembly, CohortKey};
use crate::analysis::cohort::{Cohort, Outlook};
use crate::analysis::settings::Settings;
use crate::model::conclusion::Conclusions;
use crate::model::event::StoredEvent;
use crate::units::Nanos;

/// All cohorts of all clusters.
#[derive(Debug)]
pub struct Detector {
    settings: Settings,
    assembly: Assembly,
    cohorts: BTreeMap<CohortKey, Cohort>,
}

impl Detector {
    /// A detector that has seen nothing.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            assembly: Assembly::default(),
            cohorts: BTreeMap::new(),
        }
    }

    /// Takes events in the order of their numbers and says what follows from them.
    pub fn observe(&mut self, events: &[StoredEvent]) -> Conclusions {
        let mut conclusions = Conclusions::default();
        // Silence is judged whenever a batch arrives, so it does not matter how many of them are read at a time.
        for arrived in events.chunk_by(|one, next| one.received == next.received) {
            for event in arrived {
                self.assembly.add(event);
            }
            for (key, block) in self.assembly.closed(self.settings.silence_ms) {
                let new = || Cohort::new(key.clone());
                let cohort = self.cohorts.entry(key.clone()).or_insert_with(new);
                conclusions.append(cohort.observe(block, &self.settings));
            }
        }
        conclusions
    }

    /// Ends what is open in jobs that have stopped reporting by `now` (arrival time), and forgets them.
    pub fn end_silent_jobs(&mut self, now: Nanos) -> Conclusions {
        let ended = self.assembly.take_ended(now, self.settings.end_after_ms);
        let mut conclusions = Conclusions::default();
        self.cohorts.retain(|key, cohort| {
            let has_ended = ended.contains(&(key.cluster.clone(), key.job.clone()));
            if has_ended {
                conclusions.append(cohort.end());
            }
            !has_ended
        });
        conclusions
    }

    /// What the agents should know, cohort by cohort.
    pub fn outlooks(&self) -> impl Iterator<Item = (&CohortKey, &Outlook)> {
        self.cohorts
            .iter()
            .filter_map(|(key, cohort)| Some((key, cohort.outlook()?)))
    }

    /// The settings in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Points that came after their block had been closed.
    pub const fn late_points(&self) -> u64 {
        self.assembly.late()
    }
}
