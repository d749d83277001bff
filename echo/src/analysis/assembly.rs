//! Lines up what the ranks of a cohort report about the same operations.
//!
//! A cohort is the ranks of one job that do the same in every iteration (the same role). Blocks are identified by
//! sequence numbers, never by time, so neither skewed clocks nor the order or speed of arrival change what is
//! compared. A block is closed once every rank of the role has reported it or a later one; a rank that stays
//! silent is given up after a while. The blocks of a job's cohorts come out in the order of its iterations, so that
//! what one cohort's verdict may depend on in another does not depend on whose messages were faster.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use fleet_proto::metric;

use crate::ids::{ClusterId, CommId, JobId, Op, Rank, RoleId};
use crate::model::event::{Block, Event, OpSample, Origin, SeqRange, Source, StoredEvent, Summary};
use crate::units::{Nanos, Window};

mod open_blocks;
mod plausible;
pub mod progress;
mod transfers;

use open_blocks::OpenBlocks;
use progress::Progress;
use transfers::{Host, Transfers};

/// Roles that a job may have at a time; a job with more has none that repeat.
const MAX_ROLES: usize = 256;

/// Closed blocks of a job that may be held back for the sake of their order.
const MAX_HELD: usize = 1_024;

/// Iterations of different roles are counted from different operations, so they are not equal to a hair.
const HALF_ITERATION: f64 = 0.5;

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
    /// What the members' GPUs spent inside collectives since the block before.
    pub transfers: Vec<Transfer>,
}

impl CohortBlock {
    /// Iterations from the first operation of the communicator to the end of the block.
    pub fn end_iteration(&self) -> f64 {
        self.iteration_at(self.seqs.last() + 1)
    }

    /// Iterations from the first operation of the communicator to its beginning.
    pub fn first_iteration(&self) -> f64 {
        self.iteration_at(self.seqs.first())
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "sequence numbers stay far below 2^53"
    )]
    fn iteration_at(&self, seq: u64) -> f64 {
        let n_ops = (self.seqs.last() - self.seqs.first() + 1) as f64;
        seq as f64 * self.iterations / n_ops
    }
}

/// What GPUs spent inside one block of one kind of collective.
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
    /// Time inside the operations by rank, milliseconds, with the operations that were sampled.
    pub ranks: BTreeMap<Rank, (Summary, Vec<OpSample>)>,
}

impl Transfer {
    /// The least and the most time that a rank spent in one operation on average, milliseconds.
    pub fn extremes_ms(&self) -> Option<(f64, f64)> {
        let means = self
            .ranks
            .values()
            .filter_map(|(summary, _)| summary.mean());
        means.fold(None, |extremes, mean| match extremes {
            Some((least, most)) => Some((mean.min(least), mean.max(most))),
            None => Some((mean, mean)),
        })
    }
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
    /// Where they were measured.
    pub blocked_source: Option<Source>,
    /// Times that the GPU computed, milliseconds.
    pub busy: Option<Summary>,
    /// Times that work waited in the GPU's queue, milliseconds.
    pub queue: Option<Summary>,
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
    /// Ranks whose operations have no sequence numbers, because their agent came after the communicator: they count
    /// for coverage and are not waited for.
    unnumbered: BTreeSet<Rank>,
    cohorts: BTreeMap<RoleId, OpenBlocks>,
    ready: BTreeMap<RoleId, VecDeque<CohortBlock>>,
    reached: BTreeMap<RoleId, f64>,
    transfers: Transfers,
    progress: Progress,
}

impl Assembly {
    /// Takes an event; points that say nothing about blocks are passed over.
    pub fn add(&mut self, stored: &StoredEvent) {
        let event = &stored.event;
        let Some(judged) = Judged::of(event).filter(|_| plausible::is_plausible(event)) else {
            return;
        };
        let job = self
            .jobs
            .entry((event.origin.cluster.clone(), event.origin.job.clone()))
            .or_default();
        if !job.add(stored, &judged) {
            self.late += 1;
        }
    }

    /// Blocks that are complete by now, in the order of their jobs' iterations. Ranks that were silent for longer than
    /// `silence_ms` of arrival time are no longer waited for.
    pub fn closed(&mut self, silence_ms: f64) -> Vec<(CohortKey, CohortBlock)> {
        let mut closed = Vec::new();
        for ((cluster, job_id), job) in &mut self.jobs {
            let Some(talking) = job.waited_for(silence_ms) else {
                continue;
            };
            job.close(&talking);
            let key = |role: RoleId| CohortKey {
                cluster: cluster.clone(),
                job: job_id.clone(),
                role,
            };
            while let Some((role, block)) = job.release(&talking) {
                closed.push((key(role), block));
            }
        }
        closed
    }

    /// Jobs with the progress of their ranks, for finding operations that never end.
    pub fn progress(&self) -> impl Iterator<Item = (&(ClusterId, Option<JobId>), &Progress)> {
        self.jobs.iter().map(|(key, job)| (key, &job.progress))
    }

    /// Ranks that a job is known to have.
    pub fn n_ranks(&self, cluster: &ClusterId, job: Option<&JobId>) -> usize {
        let job = self.jobs.get(&(cluster.clone(), job.cloned()));
        job.map_or(0, |job| job.world_size.max(job.roles.len()))
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

/// A point that the detector looks at.
struct Judged<'e> {
    block: &'e Block,
    rank: Rank,
    role: Option<RoleId>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Measured of the rank as a whole, in blocks of its busiest communicator.
    Whole,
    /// Time inside collectives, by a GPU.
    Transfer,
    /// How far the rank has come.
    Progress,
}

impl<'e> Judged<'e> {
    fn of(event: &'e Event) -> Option<Self> {
        let block = event.block.as_ref()?;
        let kind = match event.metric.as_str() {
            metric::HOST_GAP
            | metric::BLOCKED
            | metric::QUEUE
            | metric::BUSY
            | metric::PERIOD
            | metric::ARRIVAL => Kind::Whole,
            metric::WAIT if block.source == Source::Device => Kind::Transfer,
            metric::ISSUED => Kind::Progress,
            _ => return None,
        };
        Some(Self {
            block,
            rank: event.origin.rank?.rank(),
            role: block.role,
            kind,
        })
    }
}

impl Job {
    /// Files a point; false when its block has been closed already.
    fn add(&mut self, stored: &StoredEvent, judged: &Judged<'_>) -> bool {
        let (event, block, rank) = (&stored.event, judged.block, judged.rank);
        self.hear(stored, rank);
        if judged.kind == Kind::Progress {
            self.progress.add(block, rank, event, stored.received);
            return true;
        }
        let Some(role) = judged.role else {
            return true;
        };
        let is_new = !self.cohorts.contains_key(&role);
        if is_new && self.cohorts.len() >= MAX_ROLES {
            self.forget_idle_roles();
            if self.cohorts.len() >= MAX_ROLES {
                return false;
            }
        }
        if judged.kind == Kind::Transfer {
            let n_ranks = self.roles.len();
            return self.transfers.add(event, block, rank, n_ranks);
        }
        self.roles.insert(rank, role);
        if block.seqs.is_none() {
            self.unnumbered.insert(rank);
            return true;
        }
        self.unnumbered.remove(&rank);
        self.cohorts
            .entry(role)
            .or_default()
            .add(event, block, rank)
    }

    /// Closes what every rank of a role has passed.
    fn close(&mut self, talking: &BTreeSet<Rank>) {
        let n_roles = self.roles.values().collect::<BTreeSet<_>>().len();
        for (role, cohort) in &mut self.cohorts {
            let of_role = |rank: &&Rank| self.roles.get(rank) == Some(role);
            let numbered = |rank: &&Rank| !self.unnumbered.contains(rank);
            let members: BTreeSet<Rank> = talking
                .iter()
                .filter(of_role)
                .filter(numbered)
                .copied()
                .collect();
            let known = self.roles.values().filter(|known| *known == role).count();
            let n_expected = if n_roles == 1 {
                self.world_size.max(known)
            } else {
                known
            };
            while let Some((mut block, begins)) = cohort.close_next(&members, n_expected) {
                let host = Host {
                    seqs: block.seqs,
                    ranks: &begins,
                };
                let peers = begins.keys().copied().collect();
                block.transfers = self.transfers.take(host, &peers);
                self.reached.insert(*role, block.end_iteration());
                self.ready.entry(*role).or_default().push_back(block);
            }
        }
    }

    fn hear(&mut self, stored: &StoredEvent, rank: Rank) {
        self.first_received.get_or_insert(stored.received);
        self.last_received = self.last_received.max(stored.received);
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

    /// Takes out the block that ends first, once every role that still talks has come as far.
    fn release(&mut self, talking: &BTreeSet<Rank>) -> Option<(RoleId, CohortBlock)> {
        let ends = self.ready.iter().filter_map(|(role, blocks)| {
            let end = blocks.front()?.end_iteration();
            Some((*role, end))
        });
        let (role, end) = ends.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))?;
        let lags_behind = |other: &RoleId| {
            let reached = self.reached.get(other);
            reached.is_some_and(|reached| *reached + HALF_ITERATION < end)
        };
        let is_waited_for = talking
            .iter()
            .filter(|rank| !self.unnumbered.contains(rank))
            .filter_map(|rank| self.roles.get(rank))
            .any(lags_behind);
        let n_held: usize = self.ready.values().map(VecDeque::len).sum();
        if is_waited_for && n_held <= MAX_HELD {
            return None;
        }
        let block = self.ready.get_mut(&role)?.pop_front()?;
        Some((role, block))
    }

    /// Forgets roles that no rank has any more.
    fn forget_idle_roles(&mut self) {
        let used: BTreeSet<RoleId> = self.roles.values().copied().collect();
        self.cohorts.retain(|role, _| used.contains(role));
        self.ready.retain(|role, _| used.contains(role));
        self.reached.retain(|role, _| used.contains(role));
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
