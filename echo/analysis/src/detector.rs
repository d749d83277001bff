//! The detector: events in, conclusions out.
//!
//! It is a function of the stored events alone. The same events give the same conclusions, at whatever speed and in
//! whatever order the ranks' messages arrived; only that a rank is silent, or that nobody moves, is measured in arrival
//! time. Live detection and a replay of history are one code.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::{ClusterId, IncidentId, JobId, RoleId};
use echo_core::model::detector_output::{Baseline, Conclusions, LostTime};
use echo_core::model::event::StoredEvent;
use echo_core::units::Nanos;

use crate::assembly::{Assembly, CohortKey};
use crate::cohort::{Cohort, JobView, Outlook, Standing};
use crate::hang::Patience;
use crate::imbalance::stage_excess;
use crate::loss_accounting::Accused;
use crate::settings::Settings;

mod hang;
mod identity_conflict;
mod restore;

use hang::{Stuck, Took};
use identity_conflict::Identities;
use restore::{Handover, ended};

/// Shortest arrival time between two looks for operations that do not end, milliseconds.
const LOOK_EVERY_MS: f64 = 1_000.0;

/// A job of a cluster.
type JobKey = (ClusterId, Option<JobId>);

/// All cohorts of all clusters.
#[derive(Debug)]
pub struct Detector {
    settings: Settings,
    assembly: Assembly,
    cohorts: BTreeMap<CohortKey, Cohort>,
    stuck: Stuck,
    identities: Identities,
    handover: Handover,
    /// When operations that do not end were last looked for, arrival time.
    looked_at: Nanos,
    /// How long it is until the next look, milliseconds.
    look_after_ms: f64,
}

impl Detector {
    /// A detector that has seen nothing.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            assembly: Assembly::default(),
            cohorts: BTreeMap::new(),
            stuck: Stuck::default(),
            identities: Identities::default(),
            handover: Handover::default(),
            looked_at: Nanos::EARLIEST,
            look_after_ms: LOOK_EVERY_MS,
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
            conclusions.append(self.end_dead_roles());
            for (key, mut block) in self.assembly.closed(self.settings.silence_ms) {
                let job = (key.cluster.clone(), key.job.clone());
                if let Some((elapsed_ms, last)) = block.elapsed_ms().zip(arrived.last()) {
                    let cohort = self.cohorts.get(&key);
                    let took = Took {
                        elapsed_ms,
                        excess_ms: cohort.and_then(|cohort| cohort.excess_ms(&block)),
                    };
                    let held_up = self.stuck.held_up((&job, key.role), took, last.received);
                    block.leave_out(held_up.ms);
                    conclusions.lost.extend(held_up.lost);
                }
                let view = self.view_of(&key);
                let before = self.accused(&key);
                let new = || self.handover.cohort(&key);
                let cohort = self.cohorts.entry(key.clone()).or_insert_with(new);
                conclusions.append(cohort.observe(block, &view, &self.settings));
                conclusions.append(ended(self.handover.give(&key, cohort)));
                conclusions.lost.extend(self.charge(&key, &before));
            }
            // Also when the clock was set back: what it said before is no time that has passed.
            let is_early = |last: &StoredEvent| {
                let since = last.received.millis_since(self.looked_at);
                (0.0..self.look_after_ms).contains(&since)
            };
            if let Some(last) = arrived.last().filter(|last| !is_early(last)) {
                (self.looked_at, self.look_after_ms) = (last.received, LOOK_EVERY_MS);
                conclusions.append(self.find_stuck(last.received));
                conclusions.append(self.find_conflicts(last.received));
            }
        }
        conclusions
    }

    /// Ends and forgets the cohorts of roles that no rank has any more: a job that changes its way of working is another
    /// cohort, and the old one must not speak for it.
    fn end_dead_roles(&mut self) -> Conclusions {
        let mut conclusions = Conclusions::default();
        if !self.assembly.take_roles_changed() {
            return conclusions;
        }
        let assembly = &self.assembly;
        self.cohorts.retain(|key, cohort| {
            let is_alive = assembly.has_role(&key.cluster, key.job.as_ref(), key.role);
            if !is_alive {
                conclusions.append(cohort.end());
            }
            is_alive
        });
        conclusions
    }

    /// What a cohort has to know of the others of its job.
    fn view_of(&self, key: &CohortKey) -> JobView {
        let others: Vec<&Standing> = self
            .of_job(key)
            .filter(|(other, _)| other.role != key.role)
            .map(|(_, cohort)| cohort.standing())
            .collect();
        let own = self.cohorts.get(key).map(Cohort::standing);
        let own_ms = others.iter().map(|other| other.root_own_ms);
        let rival_own_ms = own_ms.fold(0.0, f64::max);
        // Who waits, waits for the root of the whole job.
        let is_root = own.is_some_and(|own| own.root_own_ms > rival_own_ms);
        let victims: BTreeSet<_> = if is_root {
            let all = others.iter().flat_map(|other| &other.victims);
            all.copied().collect()
        } else {
            BTreeSet::new()
        };
        JobView {
            n_ranks: self.assembly.n_ranks(&key.cluster, key.job.as_ref()),
            rival_own_ms,
            victim_lag_ms: others
                .iter()
                .map(|other| other.victim_lag_ms)
                .fold(0.0, f64::max),
            victims,
            stage_excess_ms: own.map_or(0.0, |own| own_excess_ms(own, &others)),
            is_explained: others.iter().any(|other| other.explains) || self.is_spoken_for(key),
            is_disturbed: others.iter().any(|other| other.is_disturbed),
            shifts: others
                .iter()
                .flat_map(|other| other.shifts.iter().copied())
                .collect(),
        }
    }

    /// The cohorts of a job, by role.
    fn of_job<'a>(
        &'a self,
        key: &'a CohortKey,
    ) -> impl Iterator<Item = (&'a CohortKey, &'a Cohort)> {
        let is_same = |other: &CohortKey| other.cluster == key.cluster && other.job == key.job;
        let cohorts = self.cohorts.range(first_of_job(key)..);
        cohorts.take_while(move |(other, _)| is_same(other))
    }

    /// What is open in the job of a cohort that its loss can be charged to.
    fn accused(&self, key: &CohortKey) -> Vec<Accused> {
        self.of_job(key)
            .flat_map(|(_, cohort)| cohort.accused())
            .collect()
    }

    /// Charges what a cohort has lost; where somebody else is to blame than before, or healthy means something else, what all
    /// cohorts of its job have lost.
    fn charge(&mut self, key: &CohortKey, before: &[Accused]) -> Vec<LostTime> {
        let accused = self.accused(key);
        let reasons = |accused: &[Accused]| -> Vec<(IncidentId, Baseline)> {
            let reasons = accused.iter();
            reasons.map(|one| (one.incident, one.baseline)).collect()
        };
        if reasons(&accused) == reasons(before) {
            let cohort = self.cohorts.get_mut(key);
            return cohort.map_or_else(Vec::new, |cohort| cohort.charge(&accused));
        }
        let is_same = |other: &CohortKey| other.cluster == key.cluster && other.job == key.job;
        let cohorts = self.cohorts.range_mut(first_of_job(key)..);
        cohorts
            .take_while(|(other, _)| is_same(other))
            .flat_map(|(_, cohort)| cohort.charge(&accused))
            .collect()
    }

    /// Whether another cohort that is judged at the same time speaks for the job: a slow job is one condition, and the
    /// first of its cohorts reports it.
    fn is_spoken_for(&self, key: &CohortKey) -> bool {
        let judged_at = |cohort: &Cohort| cohort.outlook().map(|outlook| outlook.computed_at);
        let Some(own) = self.cohorts.get(key).and_then(judged_at) else {
            return false;
        };
        let is_current = |cohort: &Cohort| {
            let age_ms = judged_at(cohort).map(|at| own.millis_since(at));
            age_ms.is_some_and(|age_ms| age_ms < self.settings.silence_ms)
        };
        let mut before = self.cohorts.range(first_of_job(key)..key.clone());
        before.any(|(_, cohort)| is_current(cohort))
    }

    /// Operations that do not end, at an instant of arrival time.
    fn find_stuck(&mut self, now: Nanos) -> Conclusions {
        let mut conclusions = Conclusions::default();
        for ((cluster, job), progress) in self.assembly.progress() {
            let of_job = self
                .cohorts
                .iter()
                .filter(|(key, _)| key.cluster == *cluster && key.job == *job);
            let periods = of_job.filter_map(|(_, cohort)| cohort.healthy_ms());
            let period_ms = periods.fold(0.0, f64::max);
            let periods_ms = self.settings.hang_after_periods * period_ms;
            let hang_ms = self.settings.hang_after_ms.max(periods_ms);
            let stall_ms = self.settings.stall_after_ms.max(periods_ms);
            let patience = Patience {
                hang_ms,
                stall_ms: (period_ms > 0.0 && stall_ms < hang_ms).then_some(stall_ms),
            };
            let key = (cluster.clone(), job.clone());
            conclusions.append(self.stuck.look(&key, progress, now, patience));
        }
        conclusions
    }

    /// Ranks that two nodes report, at an instant of arrival time.
    fn find_conflicts(&mut self, now: Nanos) -> Conclusions {
        let mut conclusions = Conclusions::default();
        for (job, conflicts) in self.assembly.conflicts(now) {
            let changed = self.identities.look(job, &conflicts);
            conclusions.incidents.extend(changed);
        }
        conclusions
    }

    /// Ends what is open in jobs that have stopped reporting by `now` (arrival time), and forgets them.
    pub fn end_silent_jobs(&mut self, now: Nanos) -> Conclusions {
        let mut conclusions = self.end_waiting();
        conclusions.append(self.find_stuck(now));
        let ended = self.assembly.take_ended(now, self.settings.end_after_ms);
        self.cohorts.retain(|key, cohort| {
            let has_ended = ended.contains(&(key.cluster.clone(), key.job.clone()));
            if has_ended {
                conclusions.append(cohort.end());
            }
            !has_ended
        });
        for job in &ended {
            conclusions.append(self.stuck.end(job));
            conclusions.incidents.extend(self.identities.end(job));
        }
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

    /// Points that came after their block had been closed, and points of jobs with more roles or communicators than are
    /// followed.
    pub const fn late_points(&self) -> u64 {
        self.assembly.late()
    }
}

/// The least key that a cohort of the same job can have.
fn first_of_job(key: &CohortKey) -> CohortKey {
    CohortKey {
        role: RoleId::new(0),
        ..key.clone()
    }
}

/// How much longer the GPUs of a role compute than is typical of its job, milliseconds per iteration. Only roles with as many
/// ranks are compared: the same place in each stands for the same replica.
fn own_excess_ms(own: &Standing, others: &[&Standing]) -> f64 {
    let mut table = vec![own.busy_ms.clone()];
    let same = others
        .iter()
        .filter(|other| other.busy_ms.len() == own.busy_ms.len());
    table.extend(same.map(|other| other.busy_ms.clone()));
    let excess = stage_excess(&table).unwrap_or_default();
    excess.first().copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
