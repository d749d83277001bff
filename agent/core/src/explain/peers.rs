//! Comparison of a process with the other ranks of its job on this host.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Process;
use crate::explain::cause::Cause;
use crate::explain::own_code::LineShares;
use crate::explain::recapture::Graphs;
use crate::explain::worker_lines::WorkerLines;
use crate::statistics::median;

/// Largest number of communicators by which the job of a process is known.
const MAX_COMMS: usize = 16;

/// Hash of a communicator, which differs by where it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CommHash {
    /// The call by which the process joined it.
    Call(u64),
    /// The memory of a process that had joined it before.
    Memory(u64),
}

/// Job of a process.
#[derive(Debug, Clone, Default)]
pub(super) struct ProcessJob {
    /// Name from the launcher, which most launchers do not set.
    pub(super) name: Option<String>,
    /// Hashes of the communicators of all ranks, which tell apart jobs of one size on one host.
    comms: BTreeSet<CommHash>,
}

impl ProcessJob {
    /// Adds a communicator of a process, if all ranks are in it. The hash of one whose origin is unknown is 0.
    pub(super) fn add_comm(&mut self, hash: CommHash, nranks: u32, process: Option<&Process>) {
        let is_of_all = process.is_some_and(|process| process.world_size == nranks);
        let is_known = !matches!(hash, CommHash::Call(0) | CommHash::Memory(0));
        if is_of_all && is_known && self.comms.len() < MAX_COMMS {
            self.comms.insert(hash);
        }
    }

    /// Returns whether two processes are known to be in one communicator of all ranks.
    fn shares_comm(&self, other: &Self) -> bool {
        !self.comms.is_disjoint(&other.comms)
    }

    /// Returns whether two processes are of one job, as far as is known: while an agent starts, one rank may be
    /// known by its call and another one by its memory.
    fn is_that_of(&self, other: &Self) -> bool {
        let by_call = |job: &Self| {
            let is_call = |hash: &CommHash| matches!(hash, CommHash::Call(_));
            (
                job.comms.iter().any(is_call),
                !job.comms.iter().all(is_call),
            )
        };
        let ((call, memory), (other_call, other_memory)) = (by_call(self), by_call(other));
        let is_compared = call && other_call || memory && other_memory;
        self.name == other.name && !(is_compared && self.comms.is_disjoint(&other.comms))
    }
}

/// What tells the peers of a process with a rank.
#[derive(Debug, Clone)]
pub(super) struct PeerKey {
    pub(super) rank: u32,
    /// Number of ranks of its job, at least two.
    pub(super) ranks: u32,
    pub(super) job: ProcessJob,
}

/// What is compared between processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Shares {
    /// `None` for a process without peers.
    pub(super) key: Option<PeerKey>,
    /// Shares of its time that the process lost to each cause.
    pub(super) shares: BTreeMap<Cause, f64>,
    /// Lines in this period.
    pub(super) present: LineShares,
    /// Lines in the last periods.
    pub(super) lines: LineShares,
    pub(super) graphs: Graphs,
    /// Lines of its worker processes.
    pub(super) workers: WorkerLines,
}

/// Key of each process with peers, and the ranks known to be in one communicator with it, its own among them.
#[derive(Debug)]
pub(super) struct Groups(BTreeMap<u32, (PeerKey, BTreeSet<u32>)>);

impl Groups {
    pub(super) fn new(shares: &BTreeMap<u32, Shares>) -> Self {
        let keys = || shares.values().filter_map(|own| own.key.as_ref());
        let group = |of: &PeerKey| {
            let known = keys().filter(|one| one.ranks == of.ranks && one.job.shares_comm(&of.job));
            known.map(|one| one.rank).chain([of.rank]).collect()
        };
        let processes = shares.iter().filter_map(|(pid, own)| {
            let key = own.key.clone()?;
            let group = group(&key);
            Some((*pid, (key, group)))
        });
        Self(processes.collect())
    }
}

/// Other ranks of a process's job on this host.
pub(super) struct Peers<'a>(Vec<&'a Shares>);

impl<'a> Peers<'a> {
    /// Finds the peers of a process. Of those that may be of its job, a group in one communicator is of
    /// another job if it has a rank in common with the group of the process.
    pub(super) fn new(pid: u32, shares: &'a BTreeMap<u32, Shares>, groups: &Groups) -> Self {
        let Some((key, group)) = groups.0.get(&pid) else {
            return Self(Vec::new());
        };
        let is_peer = |other: &u32| {
            groups.0.get(other).is_some_and(|(other, other_group)| {
                let is_known = key.job.shares_comm(&other.job);
                let may_be = key.ranks == other.ranks && key.job.is_that_of(&other.job);
                may_be && (is_known || group.is_disjoint(other_group))
            })
        };
        let peers = shares
            .iter()
            .filter(|(other, _)| **other != pid && is_peer(other));
        Self(peers.map(|(_, own)| own).collect())
    }

    pub(super) fn lines(&self) -> Vec<&'a LineShares> {
        self.0.iter().map(|own| &own.lines).collect()
    }

    pub(super) fn workers(&self) -> Vec<&'a WorkerLines> {
        self.0.iter().map(|own| &own.workers).collect()
    }

    pub(super) fn graphs(&self) -> Vec<Graphs> {
        self.0.iter().map(|own| own.graphs).collect()
    }

    /// Median share of the peers; `None` if they are too few. A rank that waits for a late one
    /// spends more time on what is usual, so two of them are needed there.
    pub(super) fn usual(&self, cause: Cause) -> Option<f64> {
        let shares = self.0.iter();
        let shares: Vec<f64> = shares
            .filter_map(|own| own.shares.get(&cause).copied())
            .collect();
        let enough = if cause.is_usual() { 2 } else { 1 };
        (shares.len() >= enough).then(|| median(shares))?
    }
}
