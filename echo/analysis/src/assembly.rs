//! Aligns the reports of a cohort's ranks about the same operations.
//!
//! A cohort is the ranks of one job that do the same in every iteration (the same role). Blocks are
//! identified by sequence numbers, never by time, so neither skewed clocks nor the order or speed
//! of arrival change what is compared. A block is closed once every rank of the role has reported
//! it or a later one; a rank that stays silent is not awaited any more after a timeout. The blocks
//! of a job's cohorts are returned in the order of its iterations. A cohort's verdict may depend on
//! the state of another cohort, and with this order it does not depend on message delays.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use echo_core::ids::{ClusterId, CommId, JobId, Op, Rank, RoleId};
use echo_core::model::detector_output::Incident;
use echo_core::model::event::{OpSample, SeqRange, StoredEvent, Summary};
use echo_core::units::{Nanos, Window};

pub mod exit;
mod job;
mod open_blocks;
mod plausibility;
pub mod progress;
pub mod rank_owners;
mod report;
mod transfers;

use job::{BlockEvent, Job};
use progress::Progress;
use rank_owners::Conflict;

/// The ranks that are compared: those of one job with one role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CohortKey {
    /// Cluster.
    pub cluster: ClusterId,
    /// Job, when the agents know it.
    pub job: Option<JobId>,
    /// Role of the ranks.
    pub role: RoleId,
}

/// Role in the key of a whole job, which is no hash of operations.
const WHOLE_JOB: RoleId = RoleId::new(0);

impl CohortKey {
    /// All ranks of a job, whatever their roles are.
    pub(crate) const fn of_job(cluster: ClusterId, job: Option<JobId>) -> Self {
        Self {
            cluster,
            job,
            role: WHOLE_JOB,
        }
    }

    /// Returns true if it stands for all ranks of a job.
    pub(crate) fn is_of_job(&self) -> bool {
        self.role == WHOLE_JOB
    }

    /// The cohort whose ranks an incident compares; `None` when it is not about a cohort.
    pub fn from_incident(incident: &Incident) -> Option<Self> {
        let (_, role) = incident.cohort.rsplit_once('/')?;
        let key = Self {
            cluster: incident.cluster.clone(),
            job: incident.job.clone(),
            role: role.parse().ok()?,
        };
        (*key.to_string() == *incident.cohort).then_some(key)
    }
}

impl fmt::Display for CohortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.job {
            Some(job) => write!(f, "{job}/{}", self.role),
            None => write!(f, "-/{}", self.role),
        }
    }
}

/// One block of a cohort, with the reports received.
#[derive(Debug, Clone, PartialEq)]
pub struct CohortBlock {
    /// Operations covered.
    pub seqs: SeqRange,
    /// Iterations covered; 0 where none of the operations belongs to one.
    pub iterations: f64,
    /// Iterations before it.
    pub before: f64,
    /// Median of the ranks' own event times.
    pub time: Window,
    /// The ranks that reported it, in the order of their ranks.
    pub members: Vec<Member>,
    /// Number of ranks that the cohort should have.
    pub n_expected: usize,
    /// Duration of an iteration at the end of the block, when a completion fell into it.
    pub period: Option<PeriodReading>,
    /// Time that the members' GPUs spent inside collectives since the previous block.
    pub transfers: Vec<Transfer>,
}

impl CohortBlock {
    /// Duration of its operations on the slowest rank, milliseconds; `None` when no rank reports
    /// it.
    pub fn elapsed_ms(&self) -> Option<f64> {
        let lasted = self.members.iter().filter_map(|member| member.elapsed_ms);
        lasted.reduce(f64::max)
    }

    /// Iterations from the first operation of the communicator to the end of the block.
    pub fn end_iteration(&self) -> f64 {
        self.before + self.iterations
    }
}

/// Time that GPUs spent inside one block of one kind of collective.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// Communicator.
    pub comm: CommId,
    /// Operation.
    pub op: Option<Op>,
    /// Operations covered.
    pub seqs: SeqRange,
    /// Iterations covered.
    pub iterations: f64,
    /// Time inside the operations by rank, milliseconds, with the sampled operations.
    pub ranks: BTreeMap<Rank, (Summary, Vec<OpSample>)>,
}

/// Report of one rank about one block.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Rank within the job.
    pub rank: Rank,
    /// Host gaps, milliseconds.
    pub gap: Option<Summary>,
    /// Times blocked, milliseconds.
    pub blocked: Option<Summary>,
    /// Duration of the block's operations, from completion to completion, milliseconds.
    pub elapsed_ms: Option<f64>,
    /// Mean entry of the block's operations.
    pub arrival: Option<MeanArrival>,
}

/// Entry of the operations of a block, on a clock that starts at a common completion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanArrival {
    /// Operation whose completion starts the clock.
    pub anchor_seq: u64,
    /// Mean entry, milliseconds after that completion.
    pub mean_ms: f64,
}

/// Duration of an iteration, measured between two completions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeriodReading {
    /// Mean duration of one iteration, milliseconds.
    pub ms: f64,
    /// Iterations between the completions.
    pub iterations: f64,
    /// The completions.
    pub interval: Window,
}

/// Collects events until blocks are complete.
#[derive(Debug, Default)]
pub struct Assembly {
    jobs: BTreeMap<(ClusterId, Option<JobId>), Job>,
    late: u64,
}

impl Assembly {
    /// Adds an event. Points that do not concern blocks are ignored.
    pub fn add(&mut self, stored: &StoredEvent) {
        let event = &stored.event;
        let Some(block_event) =
            BlockEvent::from_event(event).filter(|_| plausibility::is_plausible(event))
        else {
            return;
        };
        let job = self
            .jobs
            .entry((event.origin.cluster.clone(), event.origin.job.clone()))
            .or_default();
        if !job.add(stored, &block_event) {
            self.late += 1;
        }
    }

    /// Blocks that are complete by now, in the order of their jobs' iterations. Ranks that were
    /// silent for longer than `silence_ms` of arrival time are no longer awaited.
    pub fn closed(&mut self, silence_ms: f64) -> Vec<(CohortKey, CohortBlock)> {
        let mut closed = Vec::new();
        for ((cluster, job_id), job) in &mut self.jobs {
            if !job.is_assembled(silence_ms) {
                continue;
            }
            job.close(silence_ms);
            let key = |role: RoleId| CohortKey {
                cluster: cluster.clone(),
                job: job_id.clone(),
                role,
            };
            while let Some((role, block)) = job.release(silence_ms) {
                closed.push((key(role), block));
            }
        }
        closed
    }

    /// Jobs with the progress of their ranks, for finding operations that never end.
    pub fn progress(&self) -> impl Iterator<Item = (&(ClusterId, Option<JobId>), &Progress)> {
        self.jobs.iter().map(|(key, job)| (key, &job.progress))
    }

    /// Jobs with the ranks that two nodes report at an instant of arrival time.
    pub fn conflicts(
        &self,
        now: Nanos,
    ) -> impl Iterator<Item = (&(ClusterId, Option<JobId>), Vec<Conflict>)> {
        let conflicts = move |job: &Job| job.owners.conflicts(now).collect();
        self.jobs
            .iter()
            .map(move |(key, job)| (key, conflicts(job)))
    }

    /// Returns true if anything is known of the job.
    pub fn has_job(&self, job: &(ClusterId, Option<JobId>)) -> bool {
        self.jobs.contains_key(job)
    }

    /// Returns true if any rank has changed its role since the last call.
    pub fn take_roles_changed(&mut self) -> bool {
        let changed = |job: &mut Job| std::mem::take(&mut job.roles_changed);
        let flags: Vec<bool> = self.jobs.values_mut().map(changed).collect();
        flags.contains(&true)
    }

    /// Returns true if a rank belongs to the cohort.
    pub fn has_role(&self, key: &CohortKey) -> bool {
        let job = self.jobs.get(&(key.cluster.clone(), key.job.clone()));
        job.is_some_and(|job| job.members.contains_key(&key.role))
    }

    /// Removes and returns the jobs whose last report arrived more than `end_after_ms` before
    /// `now`.
    pub fn take_ended(
        &mut self,
        now: Nanos,
        end_after_ms: f64,
    ) -> BTreeSet<(ClusterId, Option<JobId>)> {
        let is_ended = |job: &Job| now.millis_since(job.last_received) > end_after_ms;
        let ended = self.jobs.iter().filter(|(_, job)| is_ended(job));
        let ended: BTreeSet<_> = ended.map(|(key, _)| key.clone()).collect();
        self.jobs.retain(|key, _| !ended.contains(key));
        ended
    }

    /// Number of points that arrived after their block had been closed.
    pub const fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests;
