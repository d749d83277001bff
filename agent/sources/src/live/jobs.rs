//! Detection of the processes that are ranks of a job.

use std::collections::BTreeMap;

use fleet_agent_bpf::layout::CommRecord;
use fleet_agent_core::event::{CommInit, Event, Labels, Process, Started};

use crate::placement::Placement;
use crate::process::Processes;

/// State of a process that calls NCCL.
#[derive(Debug)]
enum Known {
    /// Announced with its rank.
    Placed,
    /// Calls NCCL, but its rank is unknown so far.
    Unplaced(Box<Placement>),
    /// Has NCCL, but has not called it yet.
    Idle(Box<Placement>),
}

/// Processes that call NCCL.
#[derive(Debug)]
pub(crate) struct Jobs {
    processes: Processes,
    known: BTreeMap<u32, Known>,
}

impl Jobs {
    pub(crate) fn new(processes: Processes) -> Self {
        Self {
            processes,
            known: BTreeMap::new(),
        }
    }

    /// Records a call of a process, possibly joining a communicator, and returns the start event if
    /// its rank is newly known.
    pub(crate) fn observe(
        &mut self,
        pid: u32,
        init: Option<CommInit>,
        ts_ns: u64,
    ) -> Option<Event> {
        let placement = match self.known.remove(&pid) {
            Some(Known::Placed) => {
                self.known.insert(pid, Known::Placed);
                return None;
            }
            Some(Known::Unplaced(placement) | Known::Idle(placement)) => placement,
            // A process that has already exited is known by its calls only.
            None => Box::new(self.processes.placement(pid).unwrap_or_default()),
        };
        let Some((rank, world_size)) = rank(&placement, init) else {
            self.known.insert(pid, Known::Unplaced(placement));
            return None;
        };
        self.known.insert(pid, Known::Placed);
        let labels = Labels {
            job: placement.job,
            namespace: placement.namespace,
            pod: placement.pod,
            ..Labels::default()
        };
        let process = Process {
            pid,
            rank,
            world_size,
        };
        Some(Event::Started(Box::new(Started {
            ts_ns,
            process,
            labels,
        })))
    }

    /// Records that a process has NCCL. Its placement is read now, since it may have exited when
    /// its first call is seen.
    pub(super) fn record_library(&mut self, pid: u32) {
        if !self.known.contains_key(&pid)
            && let Ok(placement) = self.processes.placement(pid)
        {
            self.known.insert(pid, Known::Idle(Box::new(placement)));
        }
    }

    /// Returns whether a process was announced.
    pub(crate) fn is_announced(&self, pid: u32) -> bool {
        matches!(self.known.get(&pid), Some(Known::Placed))
    }

    /// Returns the processes that were announced.
    pub(crate) fn announced(&self) -> impl Iterator<Item = u32> + '_ {
        let placed = |(pid, known): (&u32, &Known)| matches!(known, Known::Placed).then_some(*pid);
        self.known.iter().filter_map(placed)
    }

    /// Returns the number of processes with an unknown rank.
    pub(crate) fn unplaced(&self) -> usize {
        self.known
            .values()
            .filter(|known| matches!(known, Known::Unplaced(_)))
            .count()
    }

    /// Removes a process and returns whether it was known.
    pub(crate) fn forget(&mut self, pid: u32) -> bool {
        self.known.remove(&pid).is_some()
    }
}

/// Returns rank and world size of the job. The environment from the launcher is used, unless the
/// process joins a communicator as large as the job or larger: programs that start their own
/// workers pass them an environment that is not theirs.
fn rank(placement: &Placement, init: Option<CommInit>) -> Option<(u32, u32)> {
    let from_launcher = placement.rank.zip(placement.world_size);
    let joined = init
        .filter(|init| init.nranks > 1 && init.rank < init.nranks)
        .map(|init| (init.rank, init.nranks));
    match (from_launcher, joined) {
        (Some((_, world_size)), Some((rank, nranks))) if nranks >= world_size => {
            Some((rank, nranks))
        }
        (Some(known), _) => Some(known),
        (None, joined) => joined,
    }
}

/// Converts the record of an existing communicator to its initialization.
pub(crate) fn comm_init(comm: &CommRecord) -> CommInit {
    CommInit {
        nranks: comm.nranks,
        rank: comm.rank,
        unique_id: comm.id,
        comm: Some(comm.pointer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(rank: u32, world_size: u32) -> Placement {
        Placement {
            rank: Some(rank),
            world_size: Some(world_size),
            ..Placement::default()
        }
    }

    fn joined(rank: u32, nranks: u32) -> CommInit {
        CommInit {
            nranks,
            rank,
            unique_id: 1,
            comm: Some(2),
        }
    }

    #[test]
    fn the_launcher_determines_the_rank_of_a_process() {
        assert_eq!(rank(&placement(5, 8), None), Some((5, 8)));
        assert_eq!(rank(&placement(5, 8), Some(joined(1, 2))), Some((5, 8)));
    }

    #[test]
    fn a_communicator_as_large_as_the_job_overrides_the_launcher() {
        // Workers of a program that was itself started as rank 0 of 1.
        assert_eq!(rank(&placement(0, 1), Some(joined(3, 4))), Some((3, 4)));
        assert_eq!(rank(&placement(0, 4), Some(joined(3, 4))), Some((3, 4)));
    }

    #[test]
    fn without_a_launcher_the_first_communicator_of_several_ranks_determines_the_rank() {
        assert_eq!(rank(&Placement::default(), None), None);
        assert_eq!(rank(&Placement::default(), Some(joined(0, 1))), None);
        assert_eq!(
            rank(&Placement::default(), Some(joined(2, 4))),
            Some((2, 4))
        );
    }
}
