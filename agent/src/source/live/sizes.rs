//! Rank and size of communicators that were made by splits, which the calls do not say.

use std::collections::BTreeMap;

use crate::event::CommInit;
use crate::watch::Watch;

/// Ranks of the largest communicator that is believed.
const MAX_RANKS: u32 = 1 << 20;

/// Communicators whose size nobody knows yet.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    unknown: BTreeMap<(u32, u64), CommInit>,
}

impl Sizes {
    /// Takes that a process has joined a communicator; with rank and size, or none while they are unknown.
    pub(super) fn joined(
        &mut self,
        watch: &mut Watch,
        pid: u32,
        init: CommInit,
    ) -> Option<CommInit> {
        let Some(pointer) = init.comm else {
            return Some(init);
        };
        self.unknown.remove(&(pid, pointer));
        let in_memory = watch.comm_in_memory(pid, pointer);
        if init.nranks == 0 {
            let sized = in_memory.and_then(|found| sized(init, found));
            if sized.is_none() {
                self.unknown.insert((pid, pointer), init);
            }
            return sized;
        }
        // One that is still being made in the background has no size yet.
        if in_memory
            .is_some_and(|(rank, nranks)| nranks != 0 && (rank, nranks) != (init.rank, init.nranks))
        {
            watch.distrust(pid);
        }
        Some(init)
    }

    /// Looks again before an operation on a communicator; how it was made, if that is known now and was not.
    pub(super) fn found_out(
        &mut self,
        watch: &mut Watch,
        pid: u32,
        pointer: u64,
    ) -> Option<CommInit> {
        let init = *self.unknown.get(&(pid, pointer))?;
        self.joined(watch, pid, init)
    }

    /// Forgets a process.
    pub(super) fn left(&mut self, pid: u32) {
        self.unknown.retain(|(its, _), _| *its != pid);
    }
}

fn sized(init: CommInit, (rank, nranks): (u32, u32)) -> Option<CommInit> {
    let is_possible = rank < nranks && nranks <= MAX_RANKS;
    is_possible.then_some(CommInit {
        nranks,
        rank,
        ..init
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_rank_and_a_size_is_believed() {
        let init = CommInit {
            nranks: 0,
            rank: 5,
            unique_id: 1,
            comm: Some(2),
        };
        assert_eq!(
            sized(init, (3, 8)),
            Some(CommInit {
                nranks: 8,
                rank: 3,
                ..init
            })
        );
        for wrong in [(0, 0), (8, 8), (0, MAX_RANKS + 1), (u32::MAX, 4)] {
            assert_eq!(sized(init, wrong), None, "{wrong:?}");
        }
    }
}
