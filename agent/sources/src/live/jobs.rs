//! Which processes are ranks of a job, and which ranks.

use std::collections::BTreeMap;

use fleet_agent_bpf::layout::CommRecord;
use fleet_agent_core::event::{CommInit, Event, Labels, Process, Started};

use crate::placement::Placement;
use crate::process::Processes;

/// What is known of a process that calls NCCL.
#[derive(Debug)]
enum Known {
    /// It was told of.
    Placed,
    /// It calls NCCL, and nobody knows its rank yet.
    Unplaced(Box<Placement>),
    /// It has NCCL, and has not called it yet.
    Idle(Box<Placement>),
}

/// The processes that call NCCL.
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

    /// Takes a sign of life of a process, maybe of it joining a communicator; the news that it is a rank, if it is news.
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
            // A process that has ended already is known by what it called.
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

    /// Takes that a process has NCCL: where it belongs is read now, since it may be gone when its first call is heard of.
    pub(super) fn record_library(&mut self, pid: u32) {
        if !self.known.contains_key(&pid)
            && let Ok(placement) = self.processes.placement(pid)
        {
            self.known.insert(pid, Known::Idle(Box::new(placement)));
        }
    }

    /// Whether a process was told of.
    pub(crate) fn knows(&self, pid: u32) -> bool {
        matches!(self.known.get(&pid), Some(Known::Placed))
    }

    /// Processes whose rank nobody knows.
    pub(crate) fn unplaced(&self) -> usize {
        self.known
            .values()
            .filter(|known| matches!(known, Known::Unplaced(_)))
            .count()
    }

    /// Forgets a process; whether there was anything to forget.
    pub(crate) fn forget(&mut self, pid: u32) -> bool {
        self.known.remove(&pid).is_some()
    }
}

/// Rank and ranks of the job. A launcher's word stands in the environment, unless the process joins a communicator as large as
/// the job or larger: programs that start their own workers leave them an environment that is not theirs.
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

/// How a communicator was made that was there before.
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
    fn the_launcher_says_which_rank_a_process_is() {
        assert_eq!(rank(&placement(5, 8), None), Some((5, 8)));
        assert_eq!(rank(&placement(5, 8), Some(joined(1, 2))), Some((5, 8)));
    }

    #[test]
    fn a_communicator_as_large_as_the_job_knows_better() {
        // The workers of a program that was itself started as rank 0 of 1.
        assert_eq!(rank(&placement(0, 1), Some(joined(3, 4))), Some((3, 4)));
        assert_eq!(rank(&placement(0, 4), Some(joined(3, 4))), Some((3, 4)));
    }

    #[test]
    fn without_a_launcher_the_first_communicator_of_several_ranks_says_it() {
        assert_eq!(rank(&Placement::default(), None), None);
        assert_eq!(rank(&Placement::default(), Some(joined(0, 1))), None);
        assert_eq!(
            rank(&Placement::default(), Some(joined(2, 4))),
            Some((2, 4))
        );
    }
}
