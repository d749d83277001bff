//! Detector: events in, incidents and lost time out.
//!
//! The detector is a function of the stored events alone. The same events give the same output, at
//! any speed and in any order in which the ranks' messages arrived; only silence and standstill are
//! measured in arrival time. Live detection and replay of history run the same code.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::{ClusterId, IncidentId, JobId, RoleId};
use echo_core::model::detector_output::{Baseline, DetectorOutput, LostTime};
use echo_core::model::event::StoredEvent;
use echo_core::units::Nanos;

use crate::assembly::{Assembly, CohortKey};
use crate::cohort::{Cohort, CohortState, JobView, PolicyInput};
use crate::hang::HangTimeouts;
use crate::imbalance::stage_excess;
use crate::loss_accounting::LossCause;
use crate::settings::Settings;

mod hang;
mod identity_conflict;
mod restore;
mod stragglers;

use hang::{BlockTime, HangTracker};
use identity_conflict::IdentityConflicts;
use restore::{PendingRestore, ended};
use stragglers::{Stragglers, is_duration, is_host_gap, is_progress};

/// Shortest arrival time between two hang checks, milliseconds.
const HANG_CHECK_EVERY_MS: f64 = 1_000.0;

/// A job of a cluster.
type JobKey = (ClusterId, Option<JobId>);

/// All cohorts of all clusters.
#[derive(Debug)]
pub struct Detector {
    settings: Settings,
    assembly: Assembly,
    cohorts: BTreeMap<CohortKey, Cohort>,
    hang_tracker: HangTracker,
    identity_conflicts: IdentityConflicts,
    pending_restore: PendingRestore,
    stragglers: Stragglers,
    /// Latest hang check, arrival time.
    last_hang_check: Nanos,
    /// Time until the next hang check, milliseconds.
    next_hang_check_ms: f64,
}

impl Detector {
    /// Creates a detector without history.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            assembly: Assembly::default(),
            cohorts: BTreeMap::new(),
            hang_tracker: HangTracker::default(),
            identity_conflicts: IdentityConflicts::default(),
            pending_restore: PendingRestore::default(),
            stragglers: Stragglers::default(),
            last_hang_check: Nanos::EARLIEST,
            next_hang_check_ms: HANG_CHECK_EVERY_MS,
        }
    }

    /// Processes events in the order of their numbers and returns the resulting output.
    pub fn observe(&mut self, events: &[StoredEvent]) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        // Silence is checked on every batch, so the batch size does not matter.
        for arrived in events.chunk_by(|one, next| one.received == next.received) {
            for stored in arrived {
                output.append(self.add(stored));
            }
            output.append(self.end_dead_roles());
            for (key, mut block) in self.assembly.closed(self.settings.silence_ms) {
                let job = (key.cluster.clone(), key.job.clone());
                if let Some((elapsed_ms, last)) = block.elapsed_ms().zip(arrived.last()) {
                    let cohort = self.cohorts.get(&key);
                    let took = BlockTime {
                        elapsed_ms,
                        excess_ms: cohort.and_then(|cohort| cohort.excess_ms(&block)),
                    };
                    let hang_share =
                        self.hang_tracker
                            .hang_share(&job, key.role, took, last.received);
                    block.leave_out(hang_share.ms);
                    output.lost.extend(hang_share.lost);
                }
                let end_iteration = block.end_iteration();
                self.stragglers
                    .note_iterations(&job, block.time.to(), end_iteration);
                let view = self.view_of(&key);
                let before = self.loss_causes(&key);
                let new = || self.pending_restore.cohort(&key);
                let cohort = self.cohorts.entry(key.clone()).or_insert_with(new);
                let found = cohort.observe(block, &view, &self.settings);
                output.append(ended(self.pending_restore.restore_into(&key, cohort)));
                let lost = self.account_losses(&key, &before);
                // Durations of operations tell more.
                if !self.stragglers.has(&job) {
                    output.append(found);
                    output.lost.extend(lost);
                }
            }
            // After the blocks, which tell how many iterations there were.
            output.append(self.stragglers.advance(arrived));
            output.append(self.take_over());
            // Also after the clock was set back: the earlier time is not elapsed time.
            let is_early = |last: &StoredEvent| {
                let since = last.received.millis_since(self.last_hang_check);
                (0.0..self.next_hang_check_ms).contains(&since)
            };
            if let Some(last) = arrived.last().filter(|last| !is_early(last)) {
                (self.last_hang_check, self.next_hang_check_ms) =
                    (last.received, HANG_CHECK_EVERY_MS);
                output.append(self.update_hangs(last.received));
                output.append(self.find_conflicts(last.received));
            }
        }
        output
    }

    fn add(&mut self, stored: &StoredEvent) -> DetectorOutput {
        let event = &stored.event;
        if is_duration(event) {
            return self.add_duration(stored);
        }
        if is_host_gap(event) {
            self.stragglers.add_gaps(event);
        }
        if is_progress(event) {
            self.stragglers.note_alive(event, stored.received);
        }
        self.assembly.add(stored);
        DetectorOutput::default()
    }

    /// Adds a point about durations of operations, or about waits for them. What was found before in
    /// the blocks of a job ends when it is judged by these.
    fn add_duration(&mut self, stored: &StoredEvent) -> DetectorOutput {
        let origin = &stored.event.origin;
        let job = (origin.cluster.clone(), origin.job.clone());
        let is_known = self.stragglers.has(&job);
        self.stragglers.add(&stored.event, stored.received);
        if !is_known && self.stragglers.has(&job) {
            return self.end_cohorts(&job);
        }
        DetectorOutput::default()
    }

    /// Ends what was found in the blocks of a job.
    fn end_cohorts(&mut self, job: &JobKey) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        let cohorts = self.cohorts.iter_mut();
        let of_job = cohorts.filter(|(key, _)| key.cluster == job.0 && key.job == job.1);
        of_job.for_each(|(_, cohort)| output.append(cohort.end()));
        output
    }

    /// Lets the waits of their hosts judge the jobs that have a healthy past. Faults that are open
    /// stay with those who found them.
    fn take_over(&mut self) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        for job in self.stragglers.ready() {
            let cohorts = self.cohorts.iter();
            let mut of_job = cohorts.filter(|(key, _)| key.cluster == job.0 && key.job == job.1);
            if of_job.all(|(_, cohort)| !cohort.cohort_state().is_disturbed) {
                self.stragglers.take_over(&job);
                output.append(self.end_cohorts(&job));
            }
        }
        output
    }

    /// Ends and removes the cohorts of roles that no rank has any more. A job that starts to work
    /// differently becomes another cohort, and the old one must not report for it.
    fn end_dead_roles(&mut self) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        if !self.assembly.take_roles_changed() {
            return output;
        }
        let assembly = &self.assembly;
        self.cohorts.retain(|key, cohort| {
            let is_alive = assembly.has_role(&key.cluster, key.job.as_ref(), key.role);
            if !is_alive {
                output.append(cohort.end());
            }
            is_alive
        });
        output
    }

    /// State of the job's other cohorts that a cohort needs.
    fn view_of(&self, key: &CohortKey) -> JobView {
        let others: Vec<&CohortState> = self
            .of_job(key)
            .filter(|(other, _)| other.role != key.role)
            .map(|(_, cohort)| cohort.cohort_state())
            .collect();
        let own = self.cohorts.get(key).map(Cohort::cohort_state);
        let own_ms = others.iter().map(|other| other.root_own_ms);
        let rival_own_ms = own_ms.fold(0.0, f64::max);
        // All ranks wait for the root of the whole job.
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

    /// Open incidents of the cohort's job that its loss can be attributed to.
    fn loss_causes(&self, key: &CohortKey) -> Vec<LossCause> {
        self.of_job(key)
            .flat_map(|(_, cohort)| cohort.loss_causes())
            .collect()
    }

    /// Attributes the losses of a cohort; those of all cohorts of its job if the causes or the
    /// healthy baseline have changed.
    fn account_losses(&mut self, key: &CohortKey, before: &[LossCause]) -> Vec<LostTime> {
        let causes = self.loss_causes(key);
        let reasons = |causes: &[LossCause]| -> Vec<(IncidentId, Baseline)> {
            let reasons = causes.iter();
            reasons.map(|one| (one.incident, one.baseline)).collect()
        };
        if reasons(&causes) == reasons(before) {
            let cohort = self.cohorts.get_mut(key);
            return cohort.map_or_else(Vec::new, |cohort| cohort.account_losses(&causes));
        }
        let is_same = |other: &CohortKey| other.cluster == key.cluster && other.job == key.job;
        let cohorts = self.cohorts.range_mut(first_of_job(key)..);
        cohorts
            .take_while(|(other, _)| is_same(other))
            .flat_map(|(_, cohort)| cohort.account_losses(&causes))
            .collect()
    }

    /// Returns true if another cohort evaluated at the same time reports for the job: a slow job is
    /// one condition, and its first cohort reports it.
    fn is_spoken_for(&self, key: &CohortKey) -> bool {
        let evaluated_at = |cohort: &Cohort| {
            cohort
                .policy_input()
                .map(|policy_input| policy_input.computed_at)
        };
        let Some(own) = self.cohorts.get(key).and_then(evaluated_at) else {
            return false;
        };
        let is_current = |cohort: &Cohort| {
            let age_ms = evaluated_at(cohort).map(|at| own.millis_since(at));
            age_ms.is_some_and(|age_ms| age_ms < self.settings.silence_ms)
        };
        let mut before = self.cohorts.range(first_of_job(key)..key.clone());
        before.any(|(_, cohort)| is_current(cohort))
    }

    /// Finds operations that do not end, at an instant of arrival time.
    fn update_hangs(&mut self, now: Nanos) -> DetectorOutput {
        let mut output = DetectorOutput::default();
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
            let timeouts = HangTimeouts {
                hang_ms,
                stall_ms: (period_ms > 0.0 && stall_ms < hang_ms).then_some(stall_ms),
            };
            let key = (cluster.clone(), job.clone());
            output.append(self.hang_tracker.update(&key, progress, now, timeouts));
        }
        output
    }

    /// Finds ranks that two nodes report, at an instant of arrival time.
    fn find_conflicts(&mut self, now: Nanos) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        for (job, conflicts) in self.assembly.conflicts(now) {
            let changed = self.identity_conflicts.update(job, &conflicts);
            output.incidents.extend(changed);
        }
        output
    }

    /// Ends the incidents of jobs that have stopped reporting by `now` (arrival time), and removes
    /// the jobs.
    pub fn end_silent_jobs(&mut self, now: Nanos) -> DetectorOutput {
        let mut output = self.end_waiting();
        output.append(self.update_hangs(now));
        let end_after_ms = self.settings.end_after_ms;
        output.append(self.stragglers.end_silent(now, end_after_ms));
        let ended = self.assembly.take_ended(now, end_after_ms);
        self.cohorts.retain(|key, cohort| {
            let has_ended = ended.contains(&(key.cluster.clone(), key.job.clone()));
            if has_ended {
                output.append(cohort.end());
            }
            !has_ended
        });
        for job in &ended {
            output.append(self.hang_tracker.end(job));
            output.incidents.extend(self.identity_conflicts.end(job));
        }
        output
    }

    /// Policy inputs for the agents, by cohort.
    pub fn policy_inputs(&self) -> impl Iterator<Item = (&CohortKey, PolicyInput)> {
        self.cohorts
            .iter()
            .filter_map(|(key, cohort)| Some((key, self.policy_input(key, cohort)?)))
    }

    /// Policy input of a cohort, with the ranks that are named now.
    fn policy_input(&self, key: &CohortKey, cohort: &Cohort) -> Option<PolicyInput> {
        let input = cohort.policy_input()?.clone();
        let job = (key.cluster.clone(), key.job.clone());
        if !self.stragglers.has(&job) {
            return Some(input);
        }
        let outliers = self.stragglers.named(&job);
        Some(PolicyInput { outliers, ..input })
    }

    /// The settings in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Number of points that arrived after their block had been closed, or that exceeded the limits
    /// of roles and communicators per job.
    pub const fn late_points(&self) -> u64 {
        self.assembly.late()
    }
}

/// Returns the smallest possible key of a cohort of the same job.
fn first_of_job(key: &CohortKey) -> CohortKey {
    CohortKey {
        role: RoleId::new(0),
        ..key.clone()
    }
}

/// Excess compute time of a role's GPUs over the typical one of its job, milliseconds per
/// iteration. Only roles with the same number of ranks are compared: the same index in each is the
/// same replica.
fn own_excess_ms(own: &CohortState, others: &[&CohortState]) -> f64 {
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
