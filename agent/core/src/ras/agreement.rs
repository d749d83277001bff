//! Number of operations of each rank that its peers have launched as well.
//!
//! Counts are reported by kind. Ranks that are not in step may have launched equally many
//! operations, but of different kinds. So of each kind only those are counted that at least half of
//! the ranks have launched: a rank that launched another operation than the majority is one behind.

use std::collections::BTreeMap;

use crate::event::Op;
use crate::ras::{CommStatus, RankStatus};

/// Operations of a communicator on which its ranks agree.
#[derive(Debug)]
pub(super) struct Agreement {
    /// Upper median of the launched operations, by kind.
    launched: BTreeMap<Op, u64>,
    /// Kind of operation to name: one in which the ranks differ, else the most frequent one.
    pub(super) op: Op,
}

impl Agreement {
    /// Returns `None` if no rank has launched anything.
    pub(super) fn new(comm: &CommStatus) -> Option<Self> {
        let mut by_op: BTreeMap<Op, Vec<u64>> = BTreeMap::new();
        for rank in comm.active() {
            for (op, launched) in &rank.launched {
                by_op.entry(*op).or_default().push(*launched);
            }
        }
        let mut launched = BTreeMap::new();
        let mut differing = None;
        for (op, mut counts) in by_op {
            counts.sort_unstable();
            if counts.first() != counts.last() {
                differing = differing.or(Some(op));
            }
            launched.insert(op, counts.get(counts.len() / 2).copied().unwrap_or(0));
        }
        let (most_frequent, _) = launched
            .iter()
            .max_by_key(|(_, launched)| **launched)
            .filter(|(_, launched)| **launched > 0)?;
        let op = differing.unwrap_or(*most_frequent);
        Some(Self { launched, op })
    }

    /// Returns how many operations the rank has launched in agreement with its peers.
    pub(super) fn progress(&self, rank: &RankStatus) -> u64 {
        let counts = self.launched.iter().map(|(op, agreed)| {
            let own = rank.launched.get(op).copied().unwrap_or(0);
            own.min(*agreed)
        });
        counts.fold(0, u64::saturating_add)
    }
}
