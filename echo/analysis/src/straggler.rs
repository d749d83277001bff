//! Which rank holds back a job, and what it costs, from who waits for whom.

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

mod bill;
mod clock;
mod communicator;
mod culprits;
mod evidence;
mod history;
mod job;
mod judge;
mod measure;
mod open_incidents;
mod queues;
mod spread;
mod usual;

use std::collections::{BTreeMap, HashMap};

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

    /// Adds what a rank reports about one block. Reports of different ranks may come in any order.
    /// A block without operations announces that the rank is in the communicator.
    pub fn observe(&mut self, block: &BlockSum) {
        let Some(place) = Place::from_block(block) else {
            self.invalid += u64::from(block.count);
            return;
        };
        let by_process = self.by_process.get(&block.process).copied();
        let by_comm = self.by_comm.get(&place.key).copied();
        let number = match (by_process, by_comm) {
            (Some(one), Some(other)) if one != other => self.join(one, other),
            (Some(number), _) | (None, Some(number)) => number,
            (None, None) => {
                self.next += 1;
                self.next - 1
            }
        };
        self.by_process.insert(block.process, number);
        self.by_comm.insert(place.key, number);
        let new = || Job::new(block.end, self.rule);
        let job = self.jobs.entry(number).or_insert_with(new);
        job.add(block, place);
    }

    /// Notes that a process lives.
    pub fn note(&mut self, beat: &Heartbeat) {
        let number = self.by_process.get(&beat.process);
        if let Some(job) = number.and_then(|number| self.jobs.get_mut(number)) {
            job.note(beat);
        }
    }

    /// Evaluates what all ranks have reported, and returns what is known of each job.
    pub fn advance(&mut self) -> Vec<Report> {
        let jobs = self.jobs.iter_mut();
        jobs.map(|(number, job)| {
            job.advance();
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

    /// Number of operations whose reports contradicted themselves.
    pub const fn invalid(&self) -> u64 {
        self.invalid
    }

    /// Joins two jobs that turn out to be one. The larger keeps its past; the ranks of the other
    /// join it with their next report.
    fn join(&mut self, one: JobNumber, other: JobNumber) -> JobNumber {
        let size = |number: JobNumber| self.jobs.get(&number).map_or(0, Job::len);
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
                self.by_comm.insert(key, kept);
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
        (_, Subject::Nobody) => Finding::UniformSlowdown,
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
        pieces: entries
            .iter()
            .map(|entry| Piece {
                from: job.instant(entry.from),
                to: job.instant(entry.to),
                lost_gpu_s: entry.gpu_s,
            })
            .collect(),
    })
}
