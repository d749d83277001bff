//! Rank and size of communicators that were made by splits, which the calls do not say.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_core::event::CommInit;

/// Ranks of the largest communicator that is believed.
const MAX_RANKS: u32 = 1 << 20;

/// In which processes the memory of a communicator says its rank and size. The library's own code says where they lie, and that is
/// believed once it was right for a communicator whose rank and size the call has told.
#[derive(Debug, Default)]
pub(super) struct CommSizes {
    verified: BTreeSet<u32>,
    checks: BTreeMap<u32, u32>,
}

/// Looks into the memory of a process after which it is not believed any more to become right.
const MAX_CHECKS: u32 = 256;

/// Rank and size at an address, if anybody can read them.
pub(super) type InMemory = Option<(u32, u32)>;

impl CommSizes {
    /// Compares what a process has in memory with what the call has told.
    pub(super) fn compare(&mut self, pid: u32, reported: &CommInit, in_memory: InMemory) {
        // One that is still being made in the background has no size yet, and one that is gone has anything.
        if reported.nranks > 0 && in_memory == Some((reported.rank, reported.nranks)) {
            self.verified.insert(pid);
        }
    }

    /// Whether to compare: until the memory of the process was right, and not for ever.
    pub(super) fn needs_check(&mut self, pid: u32) -> bool {
        let checks = self.checks.entry(pid).or_default();
        *checks += u32::from(*checks < MAX_CHECKS);
        *checks < MAX_CHECKS && !self.verified.contains(&pid)
    }

    /// A communicator with rank and size; none while they are unknown.
    pub(super) fn sized(&self, pid: u32, init: CommInit, in_memory: InMemory) -> Option<CommInit> {
        if init.nranks > 0 {
            return Some(init);
        }
        let (rank, nranks) = in_memory.filter(|_| self.verified.contains(&pid))?;
        let is_possible = rank < nranks && nranks <= MAX_RANKS;
        is_possible.then_some(CommInit {
            nranks,
            rank,
            ..init
        })
    }

    /// Forgets a process.
    pub(super) fn forget(&mut self, pid: u32) {
        self.verified.remove(&pid);
        self.checks.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPLIT: CommInit = CommInit {
        nranks: 0,
        rank: 5,
        unique_id: 1,
        comm: Some(2),
    };
    const WORLD: CommInit = CommInit {
        nranks: 8,
        rank: 5,
        unique_id: 3,
        comm: Some(4),
    };

    #[test]
    fn memory_is_believed_once_it_was_right() {
        let mut sizes = CommSizes::default();
        assert_eq!(sizes.sized(7, SPLIT, Some((1, 4))), None);
        sizes.compare(7, &WORLD, Some((9, 3)));
        sizes.compare(7, &WORLD, None);
        assert_eq!(sizes.sized(7, SPLIT, Some((1, 4))), None);
        sizes.compare(7, &WORLD, Some((5, 8)));
        let sized = CommInit {
            nranks: 4,
            rank: 1,
            ..SPLIT
        };
        assert_eq!(sizes.sized(7, SPLIT, Some((1, 4))), Some(sized));
        assert_eq!(sizes.sized(8, SPLIT, Some((1, 4))), None);
    }

    #[test]
    fn a_process_whose_memory_is_never_right_is_left_alone_in_the_end() {
        let mut sizes = CommSizes::default();
        let checks = (0..2 * MAX_CHECKS).filter(|_| sizes.needs_check(7));
        assert!(checks.count() < MAX_CHECKS as usize);
        assert!(sizes.needs_check(8));
    }

    #[test]
    fn what_a_call_tells_needs_no_memory() {
        assert_eq!(CommSizes::default().sized(7, WORLD, None), Some(WORLD));
    }

    #[test]
    fn only_what_can_be_a_rank_and_a_size_is_believed() {
        let mut sizes = CommSizes::default();
        sizes.compare(7, &WORLD, Some((5, 8)));
        for wrong in [(0, 0), (8, 8), (0, MAX_RANKS + 1), (u32::MAX, 4)] {
            assert_eq!(sizes.sized(7, SPLIT, Some(wrong)), None, "{wrong:?}");
        }
    }
}
