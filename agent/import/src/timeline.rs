//! Times of one rank's operations on a line of its own, which begins with its first operation.
//!
//! The times of a trace may restart: a trace of sampled steps begins each step at the same time. The
//! numbers of the operations show it, and such laps are laid end to end.

use std::collections::BTreeMap;

use crate::matching::MatchedGroup;
use crate::trace::Collective;

/// Operation of a rank on its own line of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedOp<'t> {
    /// Index of the group.
    pub(crate) group: usize,
    /// Index of the operation in the group.
    pub(crate) index: usize,
    /// The operation.
    pub(crate) op: &'t Collective,
    /// Number of the operation in its group.
    pub(crate) seq: u64,
    /// Start, nanoseconds since the first operation of the rank.
    pub(crate) start_ns: u64,
}

impl PlacedOp<'_> {
    /// End, nanoseconds since the first operation of the rank.
    pub(crate) fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.op.duration_ns)
    }
}

/// Returns the operations of a rank in order of time; `None` if the format has no times.
pub(crate) fn placed<'t>(rank: u32, groups: &[MatchedGroup<'t>]) -> Option<Vec<PlacedOp<'t>>> {
    let mut laps: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    let mut ops = Vec::new();
    for (group, matched) in groups.iter().enumerate() {
        let Some(own) = matched.ranks.iter().position(|other| *other == rank) else {
            continue;
        };
        let (mut lap, mut last_ns) = (0, 0);
        for (index, (seq, by_rank)) in matched.ops.iter().enumerate() {
            let op: &'t Collective = by_rank.get(own)?;
            let (start_ns, end_ns) = (op.start_ns?, op.end_ns()?);
            lap += usize::from(start_ns < last_ns);
            last_ns = start_ns;
            let span = laps.entry(lap).or_insert((start_ns, end_ns));
            *span = (span.0.min(start_ns), span.1.max(end_ns));
            let placed = PlacedOp {
                group,
                index,
                op,
                seq: *seq,
                start_ns,
            };
            ops.push((lap, placed));
        }
    }
    let mut offset_ns: u64 = 0;
    let mut offsets = BTreeMap::new();
    for (lap, (start_ns, end_ns)) in laps {
        offsets.insert(lap, (offset_ns, start_ns));
        offset_ns = offset_ns.saturating_add(end_ns.saturating_sub(start_ns));
    }
    let mut placed: Vec<PlacedOp<'t>> = ops
        .into_iter()
        .filter_map(|(lap, op)| {
            let (offset_ns, origin_ns) = *offsets.get(&lap)?;
            let start_ns = offset_ns.saturating_add(op.start_ns.saturating_sub(origin_ns));
            Some(PlacedOp { start_ns, ..op })
        })
        .collect();
    placed.sort_by_key(|op| (op.start_ns, op.group, op.index));
    Some(placed)
}
