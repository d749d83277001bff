//! Rank of each process within its job.
//!
//! RAS names ranks within communicators only. The largest communicator of a process is taken for
//! its job, as [`crate::pipeline`] does for processes without a launcher.

use std::collections::BTreeMap;

use crate::ras::{CommStatus, Member, MemberProcess, Status};
use crate::signal::CommId;

/// Rank of a process within its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Home {
    /// Communicator that stands for the job.
    pub(super) comm: CommId,
    /// Rank in it.
    pub(super) rank: u32,
    /// Number of its ranks.
    pub(super) size: u32,
}

/// Largest communicator of each process.
#[derive(Debug)]
pub(super) struct Homes<'s> {
    by_process: BTreeMap<&'s MemberProcess, Home>,
    /// Identity of the largest communicator of all.
    pub(super) largest: Option<CommId>,
    repeated: BTreeMap<u64, usize>,
}

impl<'s> Homes<'s> {
    pub(super) fn new(status: &'s Status) -> Self {
        let mut repeated: BTreeMap<u64, usize> = BTreeMap::new();
        for comm in &status.comms {
            *repeated.entry(comm.hash).or_default() += 1;
        }
        let mut homes = Self {
            by_process: BTreeMap::new(),
            largest: None,
            repeated,
        };
        let mut comms: Vec<&CommStatus> = status.comms.iter().collect();
        comms.sort_by_key(|comm| (std::cmp::Reverse(comm.size), comm.hash, comm.creator));
        for comm in comms {
            homes.add(comm);
        }
        homes
    }

    fn add(&mut self, comm: &'s CommStatus) {
        let id = self.comm_id(comm);
        self.largest = self.largest.or(Some(id));
        for member in comm.members() {
            if let Some(process) = &member.process {
                self.by_process.entry(process).or_insert(Home {
                    comm: id,
                    rank: member.rank,
                    size: comm.size,
                });
            }
        }
    }

    /// Returns the identity of a communicator: NCCL's hash, which the profiler plugin reports as
    /// well, unless several communicators have the same.
    pub(super) fn comm_id(&self, comm: &CommStatus) -> CommId {
        let is_unique = self.repeated.get(&comm.hash) == Some(&1);
        let creator = if is_unique { 0 } else { comm.creator };
        CommId::new(comm.hash ^ creator)
    }

    /// Returns the rank within the job. An unnamed process has that of the communicator itself.
    pub(super) fn home(&self, comm: &CommStatus, member: &Member) -> Home {
        let process = member.process.as_ref();
        let known = process.and_then(|process| self.by_process.get(process));
        known.copied().unwrap_or_else(|| Home {
            comm: self.comm_id(comm),
            rank: member.rank,
            size: comm.size,
        })
    }
}
