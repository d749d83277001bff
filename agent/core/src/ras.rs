//! Status of a job as reported by the RAS subsystem of NCCL, and the progress derived from it. Pure.
//!
//! Every process of a job with NCCL 2.24 or later answers for the whole job: its communicators,
//! their ranks, and how many operations each rank has launched. That needs no probes, and covers
//! communicators older than the agent.

mod agreement;
mod homes;
mod progress;
mod report;

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Op;
pub use crate::ras::progress::{CommProgress, progress};
pub use crate::ras::report::{LocalHost, Reporter};

/// Status of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Communicators; in answers in text only those with a discrepancy.
    pub comms: Vec<CommStatus>,
}

/// Communicator of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommStatus {
    /// Hash of the communicator in NCCL.
    pub hash: u64,
    /// Hash of its creator, which distinguishes communicators of equal [`hash`](Self::hash).
    pub creator: u64,
    /// Number of ranks.
    pub size: u32,
    /// Ranks that answered.
    pub ranks: Vec<RankStatus>,
    /// Ranks whose process did not answer: unresponsive, or considered dead.
    pub missing: Vec<Member>,
}

/// Rank of a communicator, and its process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Member {
    /// Rank within the communicator.
    pub rank: u32,
    /// Process; `None` where the answer does not name it.
    pub process: Option<MemberProcess>,
}

/// Process and GPU of a rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberProcess {
    /// Address of its host.
    pub host: String,
    /// Process id in its own namespace.
    pub pid: u32,
    /// CUDA device within the process, which may drive several.
    pub device: u32,
}

/// Rank that answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankStatus {
    /// The rank.
    pub member: Member,
    /// Number of operations that it has launched, by kind.
    pub launched: BTreeMap<Op, u64>,
    /// Whether the rank has begun to leave the communicator, or has not joined it completely.
    pub is_leaving: bool,
}

impl Status {
    /// Returns the host of each rank that the answer names.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        let members = self.comms.iter().flat_map(CommStatus::members);
        let processes = members.filter_map(|member| member.process.as_ref());
        processes.map(|process| process.host.as_str())
    }

    /// Returns the number of hosts that the answer names.
    pub fn n_hosts(&self) -> usize {
        self.hosts().collect::<BTreeSet<_>>().len()
    }
}

impl CommStatus {
    /// Returns all ranks that it names.
    fn members(&self) -> impl Iterator<Item = &Member> {
        let answered = self.ranks.iter().map(|rank| &rank.member);
        answered.chain(&self.missing)
    }

    /// Returns the ranks that take part in operations.
    fn active(&self) -> impl Iterator<Item = &RankStatus> {
        self.ranks.iter().filter(|rank| !rank.is_leaving)
    }
}
