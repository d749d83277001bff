//! Detector: events in, incidents and lost time out.
//!
//! The detector is a function of the stored events alone. The same events give the same output, at
//! any speed and in any order in which the ranks' messages arrived; only silence and standstill are
//! measured in arrival time. Live detection and replay of history run the same code.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::{ClusterId, JobId};
use echo_core::model::detector_output::{DetectorOutput, LostTime};
use echo_core::model::event::StoredEvent;
use echo_core::units::Nanos;

use crate::assembly::progress::Progress;
use crate::assembly::{Assembly, CohortBlock, CohortKey};
use crate::crash::crash;
use crate::hang::HangTimeouts;
use crate::iteration_clock::IterationClock;
use crate::policy_input::{PolicyInput, PolicyInputs};
use crate::settings::Settings;

mod hang;
mod identity_conflict;
mod restore;
mod stragglers;

use hang::{BlockTime, HangTracker};
use identity_conflict::IdentityConflicts;
use stragglers::{Stragglers, is_blocked_time, is_duration, is_progress};

/// Shortest arrival time between two hang checks, milliseconds.
const HANG_CHECK_EVERY_MS: f64 = 1_000.0;

/// A job of a cluster.
type JobKey = (ClusterId, Option<JobId>);

/// All jobs of all clusters.
#[derive(Debug)]
pub struct Detector {
    settings: Settings,
    assembly: Assembly,
    iterations: BTreeMap<JobKey, IterationClock>,
    policy_inputs: PolicyInputs,
    stragglers: Stragglers,
    hang_tracker: HangTracker,
    identity_conflicts: IdentityConflicts,
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
            iterations: BTreeMap::new(),
            policy_inputs: PolicyInputs::default(),
            stragglers: Stragglers::default(),
            hang_tracker: HangTracker::default(),
            identity_conflicts: IdentityConflicts::default(),
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
                self.add(stored);
            }
            if self.assembly.take_roles_changed() {
                self.policy_inputs.retain(|key| self.assembly.has_role(key));
            }
            let now = arrived.last().map_or(Nanos::EARLIEST, |last| last.received);
            for (key, block) in self.assembly.closed(self.settings.silence_ms) {
                output.lost.extend(self.observe_block(key, block, now));
            }
            // After the blocks, which tell how many iterations there were.
            output.append(
                self.stragglers
                    .advance(arrived, &self.iterations, &self.hang_tracker),
            );
            // Also after the clock was set back: the earlier time is not elapsed time.
            let since_ms = now.millis_since(self.last_hang_check);
            if !(0.0..self.next_hang_check_ms).contains(&since_ms) {
                (self.last_hang_check, self.next_hang_check_ms) = (now, HANG_CHECK_EVERY_MS);
                output.append(self.update_hangs(now, |_| true));
                output.append(self.find_conflicts(now));
            }
        }
        output
    }

    fn add(&mut self, stored: &StoredEvent) {
        let (event, received) = (&stored.event, stored.received);
        if is_duration(event) {
            self.stragglers.add(event, received);
            return;
        }
        if is_blocked_time(event) {
            self.stragglers.add_blocked(event);
        }
        if is_progress(event) {
            self.stragglers.note_alive(event, received);
        }
        self.assembly.add(stored);
    }

    /// Takes in a block that is complete, and returns the rest of the loss of the hang that it
    /// contains, if any.
    fn observe_block(&mut self, key: CohortKey, block: CohortBlock, now: Nanos) -> Vec<LostTime> {
        let job = (key.cluster.clone(), key.job.clone());
        let clock = self.iterations.entry(job.clone()).or_default();
        let usual_ms = clock.usual_ms();
        clock.note(block.time.to(), block.end_iteration());
        let elapsed_ms = block.elapsed_ms();
        let lost = elapsed_ms.map(|elapsed_ms| {
            let excess_ms =
                usual_ms.map(|usual_ms| block.iterations.mul_add(-usual_ms, elapsed_ms));
            let took = BlockTime {
                elapsed_ms,
                excess_ms,
            };
            self.hang_tracker.rest_of_hang(&job, key.role, took, now)
        });
        self.policy_inputs.observe(key, block, &self.settings);
        lost.unwrap_or_default()
    }

    /// Finds jobs that have crashed by `now` (arrival time), and ends the hangs of jobs whose last process
    /// has ended: at once, because no rank of theirs may report any more, and their ranks have said so
    /// before they fell silent. Jobs that have been silent for long were judged before.
    pub fn find_ended_jobs(&mut self, now: Nanos) -> DetectorOutput {
        let end_after_ms = self.settings.end_after_ms;
        self.update_hangs(now, |progress| {
            let received = progress.ended().map(|(_, end)| end.received).max();
            let is_recent =
                received.is_some_and(|received| now.millis_since(received) < end_after_ms);
            // Ranks that run are judged when they report.
            is_recent && (progress.is_over() || crash(progress, now).is_some())
        })
    }

    /// Finds operations that do not end in some of the jobs, at an instant of arrival time.
    fn update_hangs(&mut self, now: Nanos, is_due: impl Fn(&Progress) -> bool) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        let due = self.assembly.progress();
        for (job, progress) in due.filter(|(_, progress)| is_due(progress)) {
            let clock = self.iterations.get(job);
            let usual_ms = clock.and_then(IterationClock::usual_ms);
            let usual_ms = usual_ms.unwrap_or(0.0);
            let periods_ms = self.settings.hang_after_periods * usual_ms;
            let hang_ms = self.settings.hang_after_ms.max(periods_ms);
            let stall_ms = self.settings.stall_after_ms.max(periods_ms);
            let timeouts = HangTimeouts {
                hang_ms,
                stall_ms: (usual_ms > 0.0 && stall_ms < hang_ms).then_some(stall_ms),
            };
            output.append(self.hang_tracker.update(job, progress, now, timeouts));
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
        output.append(self.update_hangs(now, |_| true));
        let end_after_ms = self.settings.end_after_ms;
        output.append(self.stragglers.end_silent(now, end_after_ms));
        for job in &self.assembly.take_ended(now, end_after_ms) {
            self.iterations.remove(job);
            output.append(self.hang_tracker.end(job));
            output.incidents.extend(self.identity_conflicts.end(job));
        }
        self.policy_inputs.retain(|key| self.assembly.has_role(key));
        output
    }

    /// Policy inputs for the agents, by cohort. A job with ranks to name or to examine but without a cohort whose
    /// calls are compared, such as one that replays graphs only, has an input for all of its ranks, if it has a name.
    pub fn policy_inputs(&self) -> BTreeMap<CohortKey, PolicyInput> {
        let cohorts = self.policy_inputs.iter();
        let mut inputs: BTreeMap<_, _> = cohorts
            .map(|(key, input)| (key.clone(), input.clone()))
            .collect();
        let job_of = |key: &CohortKey| (key.cluster.clone(), key.job.clone());
        let compared: BTreeSet<JobKey> = inputs.keys().map(job_of).collect();
        let mut verdicts: Vec<_> = self.stragglers.naming().collect();
        verdicts.extend(self.hang_tracker.hanging());
        verdicts.retain(|(job, _)| job.1.is_some() && !compared.contains(job));
        for ((cluster, job), at) in verdicts {
            let input = inputs.entry(CohortKey::of_job(cluster, job));
            let input = input.or_insert_with(|| PolicyInput::without_signal(at));
            input.computed_at = input.computed_at.max(at);
        }
        for (key, input) in &mut inputs {
            let job = job_of(key);
            let clock = self.iterations.get(&job);
            input.healthy_ms = clock.and_then(IterationClock::usual_ms);
            input.outliers = self.stragglers.named(&job);
            input.outliers.extend(self.hang_tracker.missing(&job));
            input.examined = self.hang_tracker.examined(&job).to_vec();
        }
        inputs
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

#[cfg(test)]
mod tests;
