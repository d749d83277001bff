//! Communicator: matches the blocks of its ranks.

use std::collections::BTreeMap;

use echo_core::ids::CommId;
use echo_core::model::event::Source;

use crate::straggler::block::{BlockSum, Membership, Operation};

/// Largest number of blocks of one communicator that wait for ranks. A block lasts 0.25 to 1 s, so
/// this is more than the longest delay of a report; the oldest is closed as incomplete.
const MAX_OPEN: usize = 64;

/// Largest difference between the numbers of operations of two ranks, as a share. The error of a
/// mean over 99 % of the operations of a long block is far below the loss that is looked for;
/// without it one lost operation would cost a block of thousands.
const MAX_DIFFERENCE: f64 = 0.01;

/// Identity of a communicator. Transfers between two ranks of a larger communicator are a pair of
/// their own.
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
            Operation::Transfer { peer } if peer == own || peer >= size => None,
            Operation::Transfer { peer } if size > 2 => Some(Self {
                key: CommKey {
                    pair: Some((own.min(peer), own.max(peer))),
                    ..place.key
                },
                size: 2,
                slot: usize::from(own > peer),
            }),
            _ => Some(place),
        }
    }
}

/// Sums of one rank over one block. 32 bytes: a communicator of 10,240 ranks holds 330 kB per open
/// block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    /// Number of operations; 0 if the rank has not reported.
    pub(super) count: u32,
    /// Sum of the durations and the shortest one, seconds.
    pub(super) sum: f32,
    pub(super) least: f32,
    /// Sum of the leads and the smallest one, seconds; NaN if unknown.
    pub(super) lead: f32,
    pub(super) least_lead: f32,
    /// End of the last operation on the rank's clock, seconds since the job's origin.
    pub(super) end: f64,
}

impl Row {
    const MISSING: Self = Self {
        count: 0,
        sum: 0.0,
        least: 0.0,
        lead: f32::NAN,
        least_lead: f32::NAN,
        end: 0.0,
    };

    /// Sums of a block whose end is `end` seconds after the job's origin.
    pub(super) fn from_block(block: &BlockSum, end: f64) -> Self {
        let lead = |value: Option<f64>| value.map_or(f32::NAN, |ms| (ms / 1e3) as f32);
        Self {
            count: block.count,
            sum: (block.sum_ms / 1e3) as f32,
            least: (block.min_ms / 1e3) as f32,
            lead: lead(block.lead.map(|lead| lead.sum_ms)),
            least_lead: lead(block.lead.map(|lead| lead.min_ms)),
            end,
        }
    }
}

/// Block of which some or all ranks have reported, by slot.
#[derive(Debug)]
pub(super) struct MatchedBlock {
    rows: Vec<Row>,
    missing: usize,
    /// Latest end, seconds.
    latest: f64,
}

/// Result of comparing the ranks of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Every rank reported the same number of operations.
    Complete,
    /// A rank is missing.
    Incomplete,
    /// The ranks summed different numbers of operations.
    Unequal,
}

impl MatchedBlock {
    fn new(size: usize) -> Self {
        Self {
            rows: vec![Row::MISSING; size],
            missing: size,
            latest: f64::NEG_INFINITY,
        }
    }

    /// Reports with their slots.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, &Row)> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.count > 0)
    }

    /// Largest number of operations that a rank reported.
    pub(super) fn operations(&self) -> u32 {
        self.rows.iter().map(|row| row.count).max().unwrap_or(0)
    }

    /// Shortest duration of a single operation, seconds.
    pub(super) fn least(&self) -> f32 {
        let least = self.rows().map(|(_, row)| row.least);
        least.fold(f32::INFINITY, f32::min)
    }

    /// Whether the law can be applied.
    pub(super) fn comparison(&self) -> Comparison {
        let most = self.operations();
        let fewest = self.rows.iter().map(|row| row.count).min().unwrap_or(0);
        if self.missing > 0 {
            Comparison::Incomplete
        } else if f64::from(most - fewest) <= MAX_DIFFERENCE * f64::from(most) {
            Comparison::Complete
        } else {
            Comparison::Unequal
        }
    }

    /// Slots with their sums, scaled to the same number of operations.
    pub(super) fn sums(&self) -> impl Iterator<Item = (usize, f32)> {
        let most = self.operations() as f32;
        self.rows()
            .map(move |(slot, row)| (slot, row.sum * (most / row.count as f32)))
    }
}

/// Communicator of a job.
#[derive(Debug)]
pub(super) struct Communicator {
    pub(super) key: CommKey,
    /// Rank of the job in each slot; `None` until it has reported.
    pub(super) members: Vec<Option<u32>>,
    /// Operations that the rank in each slot has enqueued, as far as reported.
    pub(super) enqueued: Vec<u64>,
    /// Contains sends and receives.
    pub(super) has_transfers: bool,
    /// End of the last block of the previous evaluation, job time; `None` before the first block.
    pub(super) evaluated: Option<f64>,
    open: BTreeMap<u64, MatchedBlock>,
}

impl Communicator {
    pub(super) fn new(place: Place) -> Self {
        Self {
            key: place.key,
            members: vec![None; place.size],
            enqueued: vec![0; place.size],
            has_transfers: false,
            evaluated: None,
            open: BTreeMap::new(),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    /// Adds a report and returns the blocks that it closes. A second report of a block is ignored.
    pub(super) fn add(&mut self, slot: usize, seq: u64, row: Row) -> Vec<MatchedBlock> {
        let size = self.size();
        let block = self
            .open
            .entry(seq)
            .or_insert_with(|| MatchedBlock::new(size));
        if let Some(own) = block.rows.get_mut(slot).filter(|own| own.count == 0) {
            *own = row;
            block.missing -= 1;
            block.latest = block.latest.max(row.end);
        }
        let mut closed = Vec::new();
        if block.missing == 0 {
            closed.extend(self.open.remove(&seq));
        } else if self.open.len() > MAX_OPEN {
            closed.extend(self.open.pop_first().map(|(_, block)| block));
        }
        closed
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
