//! Rank and size of communicators created by splits, which the calls do not contain.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_core::event::CommInit;

use crate::comm_fields::RankAndSize;

/// Maximum plausible number of ranks of a communicator.
const MAX_RANKS: u32 = 1 << 20;

/// Processes in whose memory rank and size of communicators can be read. The library's code
/// contains their offsets, which are trusted once they yielded the right values for a communicator
/// whose rank and size were passed in the call.
#[derive(Debug, Default)]
pub(crate) struct CommSizes {
    verified: BTreeSet<u32>,
    checks: BTreeMap<u32, u32>,
}

/// Number of checks of a process after which they are given up.
const MAX_CHECKS: u32 = 256;

impl CommSizes {
    /// Returns a new communicator of a process with rank and size, from the call or from memory,
    /// which `read` reads at a pointer; `None` while they are unknown. `known` are the communicators
    /// of the process.
    pub(crate) fn complete(
        &mut self,
        (pid, init): (u32, CommInit),
        known: impl Iterator<Item = CommInit>,
        read: impl Fn(u64) -> Option<RankAndSize>,
    ) -> Option<CommInit> {
        let in_memory = |init: &CommInit| read(init.comm?);
        if self.needs_check(pid) {
            for known in known.chain(Some(init)) {
                self.compare(pid, &known, in_memory(&known));
            }
        }
        let found = (init.nranks == 0).then(|| in_memory(&init)).flatten();
        self.sized(pid, init, found)
    }

    /// Compares the values in memory with those of the call.
    fn compare(&mut self, pid: u32, reported: &CommInit, in_memory: Option<RankAndSize>) {
        // A communicator that is still initialized in the background has no size yet, and the
        // memory of a destroyed one is undefined.
        let in_call = RankAndSize {
            rank: reported.rank,
            nranks: reported.nranks,
        };
        if reported.nranks > 0 && in_memory == Some(in_call) {
            self.verified.insert(pid);
        }
    }

    /// Returns whether to compare: until the values of the process were right once, and for a
    /// limited number of checks.
    fn needs_check(&mut self, pid: u32) -> bool {
        let checks = self.checks.entry(pid).or_default();
        *checks += u32::from(*checks < MAX_CHECKS);
        *checks < MAX_CHECKS && !self.verified.contains(&pid)
    }

    /// Returns a communicator with rank and size; `None` while they are unknown.
    fn sized(&self, pid: u32, init: CommInit, in_memory: Option<RankAndSize>) -> Option<CommInit> {
        if init.nranks > 0 {
            return Some(init);
        }
        let RankAndSize { rank, nranks } = in_memory.filter(|_| self.verified.contains(&pid))?;
        let is_possible = rank < nranks && nranks <= MAX_RANKS;
        is_possible.then_some(CommInit {
            nranks,
            rank,
            ..init
        })
    }

    /// Removes a process.
    pub(crate) fn forget(&mut self, pid: u32) {
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

    fn in_memory(rank: u32, nranks: u32) -> RankAndSize {
        RankAndSize { rank, nranks }
    }

    #[test]
    fn memory_is_trusted_once_it_was_right() {
        let mut sizes = CommSizes::default();
        assert_eq!(sizes.sized(7, SPLIT, Some(in_memory(1, 4))), None);
        sizes.compare(7, &WORLD, Some(in_memory(9, 3)));
        sizes.compare(7, &WORLD, None);
        assert_eq!(sizes.sized(7, SPLIT, Some(in_memory(1, 4))), None);
        sizes.compare(7, &WORLD, Some(in_memory(5, 8)));
        let sized = CommInit {
            nranks: 4,
            rank: 1,
            ..SPLIT
        };
        assert_eq!(sizes.sized(7, SPLIT, Some(in_memory(1, 4))), Some(sized));
        assert_eq!(sizes.sized(8, SPLIT, Some(in_memory(1, 4))), None);
    }

    #[test]
    fn a_process_whose_memory_is_never_right_is_eventually_ignored() {
        let mut sizes = CommSizes::default();
        let checks = (0..2 * MAX_CHECKS).filter(|_| sizes.needs_check(7));
        assert!(checks.count() < MAX_CHECKS as usize);
        assert!(sizes.needs_check(8));
    }

    #[test]
    fn values_of_a_call_need_no_memory() {
        assert_eq!(CommSizes::default().sized(7, WORLD, None), Some(WORLD));
    }

    #[test]
    fn only_plausible_ranks_and_sizes_are_accepted() {
        let mut sizes = CommSizes::default();
        sizes.compare(7, &WORLD, Some(in_memory(5, 8)));
        for (rank, nranks) in [(0, 0), (8, 8), (0, MAX_RANKS + 1), (u32::MAX, 4)] {
            assert_eq!(
                sizes.sized(7, SPLIT, Some(in_memory(rank, nranks))),
                None,
                "{rank} of {nranks}"
            );
        }
    }
}
