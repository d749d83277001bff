//! Straggler detection: which rank holds back a job, why, and what it costs.
//!
//! # In one page
//!
//! Ranks of a training job wait for each other in collective operations. Two series tell all that
//! is needed, and neither needs a common clock, an iteration or a period:
//!
//! 1. **Who waited for whom** (`ledger`). An operation ends on all ranks at once, so the last to
//!    arrive is in it for the shortest time, and the others waited for it by the difference. The
//!    time that ranks wait is shared equally among those that have not arrived yet. What a rank
//!    waited in another communicator is not its own lateness (`measure`).
//! 2. **The pace** (`history`, `usual`): seconds per operation between the ends of blocks, against
//!    the job's own healthy past. It gives the loss, and the cost: ranks x time x (1 - usual /
//!    current).
//!
//! A verdict needs both, in this order (`judge`):
//!
//! | question | answer |
//! |---|---|
//! | Does nothing complete, although ranks report? | `Stall`, with the ranks that are behind |
//! | Is there no past, and does everybody wait for one rank? | `LateWithoutPast`, with a lower bound |
//! | Is there no loss? | nothing, however long ranks wait: a healthy host-bound job waits as well |
//! | Does the waiting for one rank, one node or a few ranks explain the loss? | `Rank`, `Node` |
//! | Are several stages of a pipeline late together, and the transfers of one of them no longer than usual (`stages`)? | `Rank` |
//! | In a pipeline, does one queue become empty, or on average half as long, while no other becomes much shorter, or do the transfers of one rank wait no more while those of all others do? Without times of the GPUs: does one host enqueue late? | `Rank` |
//! | Otherwise | `UniformSlowdown`; it becomes a rank when there is evidence |
//! | Has the job become faster than in its past, and was there a fault in it, seen backwards in time (`judge`)? | `Rank`, `Node`, which have ended |
//!
//! **Evidence** is lost time in seconds (`evidence`). Two seconds make a verdict, one where the job is
//! steady: 4 s at a loss of 90 %, 12 s at 20 %. Bursts add up, and time without a loss takes evidence
//! away. A loss that no rank explains speaks against every rank, takes at least 1.2 s of lost time and lasts
//! for 5 s, and one pause is never enough. The
//! *allowance*, a share of the time that is no evidence, and the evidence needed are measured from
//! the past once it is steady (while it is shorter than 20 s, what follows from it is larger), or a minute
//! long: the steadier the job, the smaller the losses that are found. Work that recurs in both halves of the past, such as evaluation and
//! checkpoints, is part of the usual. Evaluations with evidence against a rank are held back
//! (`history`), those with any evidence where a short past is steady, and are added to the past only if no incident follows. Otherwise the first seconds of
//! a fault would raise the allowance, and the rest of it would be no evidence.
//!
//! **Where the pace varies** by more than a fault costs, as in inference, the waiting is still steady
//! (`lateness`): a rank for which its peers wait beyond the usual is named once the mean pace of that
//! time confirms a loss of at least 6 % and one and a half seconds.
//!
//! **All slow, or one?** Where hosts run ahead of their GPUs and all of them become slow, one of
//! them is the slowest, and the waiting names it. The queues tell (`queues`): those of ranks that
//! only wait grow at once, those of slow hosts fall. Waiting that was
//! measured while all were slow is discarded when that ends. Names are withdrawn if more than an eighth of
//! the ranks are named one after another without a healthy pause between them, or if the loss outlasts
//! the rank. Ranks of one node that
//! are late by turns are a late node.
//!
//! **Why** (`class`): the lead is the time from the enqueue on the host to the start on the GPU. A
//! late host has nothing queued while the others' queues grow; a late GPU leaves the queues alike;
//! a slow network makes the shortest operations longer, with no rank late. Evidence explains and
//! never decides who.
//!
//! **Peers** (`peers`): the waiting that each rank causes, milliseconds per second and peer, with
//! center, sigma and limit. It shows where waiting comes from; it is no verdict.
//!
//! # Input
//!
//! Durations on the GPU or, for a job without, waits of the hosts, which obey the same law. Those
//! have no shortest operation, and show late hosts only. Hosts that run ahead do not wait: of them,
//! the one that enqueues later than it used to is named (`dry`). How much later is
//! compared with its own past, so clocks may differ.
//!
//! One [`BlockSum`] per rank, communicator and block of operations, cut by sequence number, best
//! alike on all ranks, and a [`Heartbeat`] every few seconds. A block should last 0.25 to 1 s; up
//! to 5 s work. Blocks without a counterpart, or with other counts, are left out and counted
//! ([`Coverage`]), and the rest is scaled: 10 % lost rows change no verdict. Reports may come in
//! any order, and as late as a rank likes that was heard of in the last 15 s: agents that send what
//! they have kept do so at different speeds. If one rank has lost its times, as a starved host does,
//! the others are compared without it, and if none of them was the last to arrive, it was. Where less
//! than a third of the operations can be compared, nothing is known of the waiting, and who was late
//! before is taken to be late still.
//!
//! # Cost
//!
//! Constant time per block. Per evaluation (2 s), time proportional to the slots of all
//! communicators. Memory: 40 bytes per rank of an open block, 8 bytes per slot and window, at most
//! 64 x 20 bytes per rank for the past (17 minutes), and as much for the time of a rank that is late without
//! a past. A job of 10,240 ranks in three communicators
//! each took 22 MB after two minutes, and 0.4 microseconds per block on a machine of two
//! cores (the ignored test `scale`).
//!
//! # What it cannot do
//!
//! - A pipeline with a slow GPU and only grouped transfers: their durations lack the waiting.
//!   Uniform. Where others are not grouped, as at the beginning and end of a step, those of the slow rank
//!   become no longer and those of all others do (`dry`): it is named. Transfers in a communicator of more than two ranks are used for pace and leads only.
//! - Of two late ranks, the faster one hides behind the slower where hosts run ahead. It is named
//!   when the slower one is repaired.
//! - A uniform slowdown in which one host stays the slowest for longer than the queues can tell.
//! - Ranks that share a GPU.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "counts of one window stay far below 2^53, and seconds since a job's origin below 2^63 ns"
)]

pub mod block;
pub mod class;
pub mod incident;
pub mod ledger;
pub mod peers;
pub mod rule;

mod alone;
mod bill;
mod clock;
mod communicator;
mod culprits;
mod dry;
mod early;
mod evidence;
mod fading;
mod history;
mod job;
mod judge;
mod lateness;
mod limits;
mod matched_block;
mod measure;
mod member;
mod open_incidents;
mod queues;
mod spread;
mod stages;
mod stall;
mod usual;

use std::collections::{BTreeMap, HashMap};

use echo_core::model::event::Source;
use echo_core::units::Nanos;

use crate::straggler::block::{BlockSum, Heartbeat, ProcessKey};
use crate::straggler::communicator::{CommKey, Place};
use crate::straggler::evidence::Subject;
use crate::straggler::incident::{Finding, Incident, Piece};
use crate::straggler::job::Job;
use crate::straggler::ledger::Coverage;
use crate::straggler::open_incidents::{Kind, State};
use crate::straggler::peers::PeerComparison;
use crate::straggler::rule::Rule;

/// Number of a job of a detector, in the order in which they were seen.
pub type JobNumber = u64;

/// News about one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Job.
    pub job: JobNumber,
    /// Number of its ranks.
    pub ranks: usize,
    /// Open incidents, and those that were closed since the last report.
    pub incidents: Vec<Incident>,
    /// Operations that were compared so far, and those that were not.
    pub coverage: Coverage,
}

/// Detector of all jobs of a cluster. A job is a connected component of communicators.
#[derive(Debug, Default)]
pub struct Detector {
    rule: Rule,
    jobs: BTreeMap<JobNumber, Job>,
    by_process: HashMap<ProcessKey, JobNumber>,
    by_comm: HashMap<CommKey, JobNumber>,
    next: JobNumber,
    invalid: u64,
}

impl Detector {
    /// Creates a detector without jobs.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            ..Self::default()
        }
    }

    /// Adds what a rank reports about one block, received at an instant of the clock of the receiver.
    /// Reports of different ranks may come in any order.
    pub fn observe(&mut self, block: &BlockSum, received: Nanos) {
        let Some(place) = Place::from_block(block) else {
            self.invalid += u64::from(block.count);
            return;
        };
        let by_process = match self.job_of(block) {
            Some(number) if self.source(number) == Some(block.source) => Some(number),
            // What the GPU says is more than what its host says.
            Some(_) if block.source == Source::Host => return,
            Some(number) => {
                self.remove(number);
                None
            }
            None => None,
        };
        let by_comm = self.by_comm.get(&place.key.whole()).copied();
        let number = match (by_process, by_comm) {
            (Some(one), Some(other)) if one != other => self.join(one, other),
            (Some(number), _) | (None, Some(number)) => number,
            (None, None) => {
                self.next += 1;
                self.next - 1
            }
        };
        self.by_process.insert(block.process, number);
        self.by_comm.insert(place.key.whole(), number);
        let new = || Job::new(block.end, block.source, self.rule);
        let job = self.jobs.entry(number).or_insert_with(new);
        job.add(block, place, received);
    }

    /// Notes that a process lives, and how far it is.
    pub fn note(&mut self, beat: &Heartbeat, received: Nanos) {
        let number = self.by_process.get(&beat.process);
        let job = number.and_then(|number| self.jobs.get_mut(number));
        let place = Place::from_member(beat.member, beat.source);
        if let Some((job, place)) = job.zip(place) {
            job.note(beat, place, received);
        }
    }

    /// Notes that a process lives at an instant of its own clock, without a word about its progress.
    pub fn note_alive(&mut self, process: ProcessKey, at: Nanos, received: Nanos) {
        let number = self.by_process.get(&process);
        if let Some(job) = number.and_then(|number| self.jobs.get_mut(number)) {
            job.note_alive(process, (at, received));
        }
    }

    /// Evaluates what all ranks have reported, and returns what is known of the jobs of which there
    /// was something to evaluate. A rank from which nothing was received for a while before `now` is
    /// not waited for.
    pub fn advance(&mut self, now: Nanos) -> Vec<Report> {
        let jobs = self.jobs.iter_mut();
        let evaluated = jobs.filter_map(|(number, job)| job.advance(now).then_some((number, job)));
        evaluated
            .map(|(number, job)| {
                let states = job.judge.incidents.take();
                Report {
                    job: *number,
                    ranks: job.len(),
                    incidents: states
                        .iter()
                        .filter_map(|state| incident(job, state))
                        .collect(),
                    coverage: job.coverage,
                }
            })
            .collect()
    }

    /// Compares the ranks of a job by the waiting that they cause; `None` before its first
    /// evaluation.
    pub fn peers(&self, job: JobNumber) -> Option<PeerComparison> {
        self.jobs.get(&job)?.peers()
    }

    /// What measures the ranks of a job: their GPUs, or their hosts where GPUs are not timed.
    pub fn source(&self, job: JobNumber) -> Option<Source> {
        self.jobs.get(&job).map(Job::source)
    }

    /// The same for the job of a process.
    pub fn source_of(&self, process: ProcessKey) -> Option<Source> {
        self.source(*self.by_process.get(&process)?)
    }

    /// Returns true if the job exists: it may have been joined with another one.
    pub fn contains(&self, job: JobNumber) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Processes of a job, also of those that are gone.
    pub fn processes(&self, job: JobNumber) -> impl Iterator<Item = ProcessKey> {
        let job = self.jobs.get(&job);
        job.into_iter().flat_map(Job::processes)
    }

    /// Jobs of which nothing was received for `after_ms` milliseconds before `now`.
    pub fn silent(&self, now: Nanos, after_ms: f64) -> Vec<JobNumber> {
        let is_silent = |job: &Job| {
            job.heard()
                .is_none_or(|at| now.millis_since(at) >= after_ms)
        };
        let silent = self.jobs.iter().filter(|(_, job)| is_silent(job));
        silent.map(|(number, _)| *number).collect()
    }

    /// Processes of the ranks of a job that still report.
    pub fn living(&self, job: JobNumber) -> impl Iterator<Item = ProcessKey> {
        let job = self.jobs.get(&job);
        job.into_iter().flat_map(Job::living_processes)
    }

    /// Forgets a job.
    pub fn remove(&mut self, job: JobNumber) {
        self.jobs.remove(&job);
        self.by_process.retain(|_, number| *number != job);
        self.by_comm.retain(|_, number| *number != job);
    }

    /// Number of operations whose reports contradicted themselves.
    pub const fn invalid(&self) -> u64 {
        self.invalid
    }

    fn job_of(&self, block: &BlockSum) -> Option<JobNumber> {
        self.by_process.get(&block.process).copied()
    }

    /// Joins two jobs that turn out to be one. One that has begun, else the larger, keeps its past; the
    /// ranks of the other join it with what they have reported if that has not begun, else with
    /// their next report.
    fn join(&mut self, one: JobNumber, other: JobNumber) -> JobNumber {
        let size = |number: JobNumber| {
            let job = self.jobs.get(&number);
            job.map_or((false, 0), |job| (job.early().is_none(), job.len()))
        };
        let (kept, dropped) = if (size(one), other) >= (size(other), one) {
            (one, other)
        } else {
            (other, one)
        };
        if let Some(job) = self.jobs.remove(&dropped) {
            for process in job.processes() {
                self.by_process.insert(process, kept);
            }
            for key in job.comm_keys() {
                self.by_comm.insert(key.whole(), kept);
            }
            let into = self.jobs.get_mut(&kept);
            if let Some((into, early)) = into.zip(job.early()) {
                for (block, place, received) in early.iter() {
                    into.add(block, *place, *received);
                }
            }
        }
        kept
    }
}

/// Incident as it is published.
fn incident(job: &Job, state: &State) -> Option<Incident> {
    let finding = match (state.kind, state.subject) {
        (Kind::Stall, _) => {
            let behind = state.behind.iter();
            Finding::Stall(behind.filter_map(|rank| job.rank(*rank)).collect())
        }
        (Kind::LateWithoutPast, Subject::Rank(rank)) => Finding::LateWithoutPast(job.rank(rank)?),
        (_, Subject::Rank(rank)) => Finding::Rank(job.rank(rank)?),
        (_, Subject::Node(node)) => {
            let (node, ranks) = job.node(node)?;
            Finding::Node(node, ranks)
        }
        (_, Subject::Unexplained) => Finding::UniformSlowdown,
    };
    let entries = state.bill.without_ripples();
    Some(Incident {
        number: state.number,
        finding,
        class: state.votes.class(),
        since: job.instant(state.since),
        known: job.instant(state.known),
        until: job.instant(state.until),
        is_closed: state.is_closed,
        lost_gpu_s: entries.iter().map(|entry| entry.gpu_s).sum(),
        loss: state.bill.median(|entry| entry.loss),
        waited_ms_per_s: 1e3 * state.bill.median(|entry| entry.waited),
        late_ms: 1e3 * state.bill.median(|entry| entry.late),
        pieces: entries
            .iter()
            .map(|entry| Piece {
                from: job.instant(entry.from),
                to: job.instant(entry.to),
                lost_gpu_s: entry.gpu_s,
                waited: (entry.waited / entry.loss.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0),
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests;
