//! Lines up what the ranks of a cohort report about the same operations.
//!
//! A cohort is the ranks of one job that do the same in every iteration (the same role). Blocks are identified by
//! sequence numbers, never by time, so neither skewed clocks nor the order or speed of arrival change what is
//! compared. A block is closed once every rank of the role has reported it or a later one; a rank that stays
//! silent is given up after a while.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use fleet_proto::metric;

use crate::ids::{ClusterId, JobId, Rank, RoleId};
use crate::model::event::{Block, Event, Origin, SeqRange, StoredEvent, Summary};
use crate::units::{Nanos, Window};

mod open_blocks;

use open_blocks::OpenBlocks;

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

impl fmt::Display for CohortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.job {
            Some(job) => write!(f, "{job}/{}", self.role),
            None => write!(f, "-/{}", self.role),
        }
    }
}

/// One block of a cohort, as far as its ranks reported it.
#[derive(Debug, Clone, PartialEq)]
pub struct CohortBlock {
    /// Operations covered.
    pub seqs: SeqRange,
    /// Iterations covered.
    pub iterations: f64,
    /// Median of the ranks' own event times.
    pub time: Window,
    /// The ranks that reported it, in the order of their ranks.
    pub members: Vec<Member>,
    /// Ranks that the cohort should have.
    pub n_expected: usize,
    /// Duration of an iteration at the end of the block, when a completion fell into it.
    pub period: Option<PeriodReading>,
}

/// What one rank reported about one block.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Rank within the job.
    pub rank: Rank,
    /// Who it is.
    pub origin: Arc<Origin>,
    /// Host gaps, milliseconds.
    pub gap: Option<Summary>,
    /// Times blocked, milliseconds.
    pub blocked: Option<Summary>,
    /// Mean entry of the block's operations.
    pub arrival: Option<MeanArrival>,
}

/// When the operations of a block were entered, on a clock that starts at a common completion.
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

#[derive(Debug, Default)]
struct Job {
    world_size: usize,
    first_received: Option<Nanos>,
    last_received: Nanos,
    roles: BTreeMap<Rank, RoleId>,
    heard: BTreeMap<Rank, Nanos>,
    cohorts: BTreeMap<RoleId, OpenBlocks>,
}

impl Assembly {
    /// Takes an event; points that say nothing about blocks are passed over.
    pub fn add(&mut self, stored: &StoredEvent) {
        let event = &stored.event;
        let Some((block, rank, role)) = judged(event) else {
            return;
        };
        let job = self
            .jobs
            .entry((event.origin.cluster.clone(), event.origin.job.clone()))
            .or_default();
        job.hear(stored, rank, role);
        if !job.cohorts.entry(role).or_default().add(event, block, rank) {
            self.late += 1;
        }
    }

    /// Blocks that are complete by now, oldest first within each cohort. Ranks that were silent for longer than
    /// `silence_ms` of arrival time are no longer waited for.
    pub fn closed(&mut self, silence_ms: f64) -> Vec<(CohortKey, CohortBlock)> {
        let mut closed = Vec::new();
        for ((cluster, job_id), job) in &mut self.jobs {
            let Some(talking) = job.waited_for(silence_ms) else {
                continue;
            };
            let n_roles = job.roles.values().collect::<BTreeSet<_>>().len();
            for (role, cohort) in &mut job.cohorts {
                let of_role = |rank: &&Rank| job.roles.get(rank) == Some(role);
                let members: BTreeSet<Rank> = talking.iter().filter(of_role).copied().collect();
                let known = job.roles.values().filter(|known| *known == role).count();
                let n_expected = if n_roles == 1 {
                    job.world_size.max(known)
                } else {
                    known
                };
                let key = CohortKey {
                    cluster: cluster.clone(),
                    job: job_id.clone(),
                    role: *role,
                };
                while let Some(block) = cohort.close_next(&members, n_expected) {
                    closed.push((key.clone(), block));
                }
            }
        }
        closed
    }

    /// Forgets the jobs that were last heard more than `end_after_ms` before `now`, and names them.
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

    /// Points that came after their block had been closed.
    pub const fn late(&self) -> u64 {
        self.late
    }
}

/// The block, rank and role of an event that the detector judges.
fn judged(event: &Event) -> Option<(&Block, Rank, RoleId)> {
    let signals = [
        metric::HOST_GAP,
        metric::BLOCKED,
        metric::PERIOD,
        metric::ARRIVAL,
    ];
    let block = event
        .block
        .as_ref()
        .filter(|_| signals.contains(&event.metric.as_str()))?;
    Some((block, event.origin.rank?.rank(), block.role?))
}

impl Job {
    fn hear(&mut self, stored: &StoredEvent, rank: Rank, role: RoleId) {
        self.first_received.get_or_insert(stored.received);
        self.last_received = self.last_received.max(stored.received);
        self.roles.insert(rank, role);
        self.heard.insert(rank, stored.received);
        let size = stored
            .event
            .origin
            .rank
            .and_then(crate::ids::RankOf::world_size);
        self.world_size = self
            .world_size
            .max(size.and_then(|n| usize::try_from(n).ok()).unwrap_or(0));
    }

    /// Ranks that blocks wait for. Nothing until every rank of the world has spoken, or has had its time to: which
    /// ranks make up a cohort must not depend on who spoke first.
    fn waited_for(&self, silence_ms: f64) -> Option<BTreeSet<Rank>> {
        let is_silent = |instant: Nanos| self.last_received.millis_since(instant) > silence_ms;
        let everybody_spoke = self.heard.len() >= self.world_size;
        let had_time = self.first_received.is_some_and(is_silent);
        let talking = self.heard.iter().filter(|(_, at)| !is_silent(**at));
        (everybody_spoke || had_time).then(|| talking.map(|(rank, _)| *rank).collect())
    }
}

#[cfg(test)]
mod tests;
