//! Communicator: matches the blocks of its ranks.

use std::collections::BTreeMap;

use echo_core::ids::CommId;
use echo_core::model::event::{SeqRange, Source};
use echo_core::units::Nanos;

use crate::straggler::block::{BlockSum, Membership, Operation};
use crate::straggler::matched_block::{Comparison, MatchedBlock, Row, is_known};

/// Largest number of blocks of one communicator that wait for ranks: as many as fit into so many
/// rows, 40 bytes each, and at least half a minute of blocks. The oldest is closed as incomplete.
const MAX_OPEN_ROWS: usize = 65_536;
const MIN_OPEN: usize = 64;

/// Identity of a communicator. Transfers between two of its ranks are a pair of their own; those
/// that a rank reports without their other end are a pair of the rank with itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CommKey {
    id: CommId,
    source: Source,
    pair: Option<(u32, u32)>,
}

/// Place of a block: its communicator, the number of ranks that report it, and the place of this
/// rank among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) key: CommKey,
    pub(super) size: usize,
    pub(super) slot: usize,
}

impl CommKey {
    /// Origin of the durations.
    pub(super) const fn source(self) -> Source {
        self.source
    }

    /// The communicator as a whole.
    pub(super) const fn whole(self) -> Self {
        Self { pair: None, ..self }
    }
}

impl Place {
    /// Place of a rank in the collectives of a communicator; `None` if it contradicts itself.
    pub(super) fn from_member(member: Membership, source: Source) -> Option<Self> {
        let key = CommKey {
            id: member.comm,
            source,
            pair: None,
        };
        (member.rank < member.size && member.size >= 2).then_some(Self {
            key,
            size: member.size as usize,
            slot: member.rank as usize,
        })
    }

    /// Place of a block; `None` if it contradicts itself: a rank outside of the communicator, or a
    /// communicator of one.
    pub(super) fn from_block(block: &BlockSum) -> Option<Self> {
        let (own, size) = (block.member.rank, block.member.size);
        let place = Self::from_member(block.member, block.source)?;
        match block.operation {
            Operation::Transfer { peer: Some(peer) } if peer == own || peer >= size => None,
            Operation::Transfer { peer } => {
                let other = peer.unwrap_or(own);
                Some(Self {
                    key: CommKey {
                        pair: Some((own.min(other), own.max(other))),
                        ..place.key
                    },
                    size: if other == own { 1 } else { 2 },
                    slot: usize::from(own > other),
                })
            }
            Operation::Collective => Some(place),
        }
    }
}

/// Steps in which the usual shortest duration follows those of blocks, as a share of it: of the first
/// blocks larger ones, since those of a beginning job are not like the later ones.
const FOLLOW: f32 = 0.02;

/// Communicator of a job.
#[derive(Debug)]
pub(super) struct Communicator {
    pub(super) key: CommKey,
    /// Rank of the job in each slot; `None` until it has reported.
    pub(super) members: Vec<Option<u32>>,
    /// Operations that the rank in each slot has enqueued, as far as reported.
    pub(super) enqueued: Vec<u64>,
    /// Time at which its first report was received.
    since: Nanos,
    /// Contains sends and receives.
    pub(super) has_transfers: bool,
    /// Usual shortest duration of an operation, of all ranks, seconds, and number of blocks that it
    /// was learned from.
    pub(super) usual: f32,
    learned: f32,
    /// Blocks that were left out because the clocks of its ranks were not aligned.
    pub(super) unplaced: u32,
    /// End of the last block of the previous evaluation, job time; `None` before the first block.
    pub(super) evaluated: Option<f64>,
    open: BTreeMap<u64, MatchedBlock>,
}

impl Communicator {
    pub(super) fn new(place: Place, received: Nanos) -> Self {
        Self {
            key: place.key,
            since: received,
            members: vec![None; place.size],
            enqueued: vec![0; place.size],
            has_transfers: false,
            usual: f32::INFINITY,
            learned: 0.0,
            unplaced: 0,
            evaluated: None,
            open: BTreeMap::new(),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns true while ranks that have not reported yet are waited for: for `patience_s` seconds
    /// after the first report.
    pub(super) fn is_expected(&self, now: Nanos, patience_s: f64) -> bool {
        now.millis_since(self.since) < 1e3 * patience_s && self.members.iter().any(Option::is_none)
    }

    /// Learns from a block how short operations are without waiting.
    pub(super) fn learn(&mut self, block: &MatchedBlock) {
        if block.comparison(self.usual) == Comparison::Complete {
            let sums = block.scaled().map(|(_, sum)| sum);
            let shortest = sums.fold(f32::INFINITY, f32::min);
            let shortest = shortest / block.operations() as f32;
            let step = 1.0 + (1.0 / (self.learned + 1.0)).max(FOLLOW);
            self.learned += 1.0;
            self.usual = if is_known(self.usual) {
                shortest.clamp(self.usual / step, self.usual * step)
            } else {
                shortest
            };
        }
    }

    fn max_open(&self) -> usize {
        (MAX_OPEN_ROWS / self.size().max(1)).max(MIN_OPEN)
    }

    /// Adds a report about the operations `seqs`, which ended at `end`, job time, and returns the
    /// blocks that it closes. Blocks that overlap become one, since the ranks may cut theirs
    /// differently.
    pub(super) fn add(
        &mut self,
        slot: usize,
        seqs: SeqRange,
        (row, end): (&Row, f64),
    ) -> Vec<MatchedBlock> {
        let first = self.open_block(seqs);
        let mut closed = Vec::new();
        if let Some(block) = self.open.get_mut(&first) {
            block.add(slot, row, end);
            if block.missing == 0 {
                closed.extend(self.open.remove(&first));
            }
        }
        if self.open.len() > self.max_open() {
            closed.extend(self.open.pop_first().map(|(_, block)| block));
        }
        closed
    }

    /// First operation of the open block that contains the operations `seqs`.
    fn open_block(&mut self, seqs: SeqRange) -> u64 {
        let overlapping = self.last_overlapping(seqs);
        let known = overlapping.and_then(|first| self.open.get(&first));
        let contains = |block: &MatchedBlock| {
            block.seqs.first() <= seqs.first() && seqs.last() <= block.seqs.last()
        };
        if let Some(block) = known.filter(|block| contains(block)) {
            return block.seqs.first();
        }
        let mut block = MatchedBlock::new(seqs, self.members.len(), self.key.source);
        while let Some(first) = self.last_overlapping(block.seqs) {
            if let Some(known) = self.open.remove(&first) {
                block.merge(&known);
            }
        }
        let first = block.seqs.first();
        self.open.insert(first, block);
        first
    }

    /// First operation of the last open block that overlaps with `seqs`.
    fn last_overlapping(&self, seqs: SeqRange) -> Option<u64> {
        let (first, block) = self.open.range(..=seqs.last()).next_back()?;
        (block.seqs.last() >= seqs.first()).then_some(*first)
    }

    /// Removes and returns the blocks that ended before `end`: a rank that has not reported them
    /// will not do so any more.
    pub(super) fn overdue(&mut self, end: f64) -> Vec<MatchedBlock> {
        let is_overdue = |block: &MatchedBlock| block.latest < end;
        let overdue: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, block)| is_overdue(block))
            .map(|(seq, _)| *seq)
            .collect();
        let blocks = overdue.iter();
        blocks.filter_map(|seq| self.open.remove(seq)).collect()
    }
}

#[cfg(test)]
mod tests;
