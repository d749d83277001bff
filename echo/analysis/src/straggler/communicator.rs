//! Communicator: matches the blocks of its ranks.

use std::collections::BTreeMap;

use echo_core::ids::CommId;
use echo_core::model::event::{SeqRange, Source};
use echo_core::stats::median;
use echo_core::units::Nanos;

use crate::straggler::block::{BlockSum, Membership, Operation};

/// Largest number of blocks of one communicator that wait for ranks: as many as fit into so many
/// rows, 40 bytes each, and at least half a minute of blocks. The oldest is closed as incomplete.
const MAX_OPEN_ROWS: usize = 65_536;
const MIN_OPEN: usize = 64;

/// Largest difference between the numbers of operations of two ranks, as a share, in blocks of at
/// least so many operations. Their means are compared: plugins drop operations at random, and of
/// many operations those that are left are like the others. In a short block one operation may be the
/// one that matters.
const MAX_DIFFERENCE: f64 = 0.25;
const MANY: u32 = 32;

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

/// Sums of one rank over one block. 40 bytes: a communicator of 10,240 ranks holds 410 kB per open
/// block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    /// Number of operations of the block that the rank has reported, summed or not.
    pub(super) covered: u64,
    /// Number of operations that are summed.
    pub(super) count: u32,
    /// Sum of the durations and the shortest one, seconds.
    pub(super) sum: f32,
    pub(super) least: f32,
    /// Sum of the leads and the smallest one, seconds; NaN if unknown. Of host waits, the sum of the
    /// times from the enqueues to `end`.
    pub(super) lead: f32,
    pub(super) least_lead: f32,
    /// End of the last operation on the rank's clock, seconds since the job's origin.
    pub(super) end: f64,
}

impl Row {
    const MISSING: Self = Self {
        covered: 0,
        count: 0,
        sum: 0.0,
        least: f32::INFINITY,
        lead: 0.0,
        least_lead: f32::INFINITY,
        end: f64::NEG_INFINITY,
    };

    /// Sums of a block whose end is `end` seconds after the job's origin.
    pub(super) fn from_block(block: &BlockSum, end: f64) -> Self {
        let lead = |value: Option<f64>| value.map_or(f32::NAN, |ms| (ms / 1e3) as f32);
        Self {
            covered: length(block.seqs),
            count: block.count,
            sum: (block.sum_ms / 1e3) as f32,
            least: (block.min_ms / 1e3) as f32,
            lead: lead(block.lead.map(|lead| lead.sum_ms)),
            least_lead: lead(block.lead.map(|lead| lead.min_ms)),
            end,
        }
    }

    /// Adds what the rank reports about other operations of the same block.
    fn add(&mut self, other: &Self, source: Source) {
        let end = self.end.max(other.end);
        let lead = |row: &Self| match source {
            Source::Host if row.count > 0 => {
                row.lead + ((end - row.end) * f64::from(row.count)) as f32
            }
            _ => row.lead,
        };
        self.lead = lead(self) + lead(other);
        self.end = end;
        self.covered = self.covered.saturating_add(other.covered);
        self.count = self.count.saturating_add(other.count);
        self.sum += other.sum;
        if other.count > 0 {
            self.least = self.least.min(other.least);
            self.least_lead = self.least_lead.min(other.least_lead);
        }
    }

    /// Mean instant at which the operations were enqueued, by host waits, on the rank's clock, seconds
    /// since the job's origin.
    fn enqueued(&self) -> f64 {
        self.end - f64::from(self.lead) / f64::from(self.count)
    }
}

/// Number of operations of a range.
fn length(seqs: SeqRange) -> u64 {
    (seqs.last() - seqs.first()).saturating_add(1)
}

/// Block of which some or all ranks have reported, by slot.
#[derive(Debug)]
pub(super) struct MatchedBlock {
    seqs: SeqRange,
    source: Source,
    rows: Vec<Row>,
    /// Number of ranks that have not reported all of its operations.
    missing: usize,
    /// Latest end, job time, seconds.
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
    fn new(seqs: SeqRange, size: usize, source: Source) -> Self {
        Self {
            seqs,
            source,
            rows: vec![Row::MISSING; size],
            missing: size,
            latest: f64::NEG_INFINITY,
        }
    }

    /// Adds a report. One about operations that the rank has reported already is ignored.
    fn add(&mut self, slot: usize, row: &Row, end: f64) {
        let all = length(self.seqs);
        let fits = |own: &&mut Row| own.covered.saturating_add(row.covered) <= all;
        if let Some(own) = self.rows.get_mut(slot).filter(fits) {
            own.add(row, self.source);
            self.missing -= usize::from(own.covered == all);
            self.latest = self.latest.max(end);
        }
    }

    /// Extends it to the operations of an overlapping one.
    fn merge(&mut self, other: &Self) {
        self.extend(other.seqs);
        let others = other.rows.iter().enumerate();
        for (slot, row) in others.filter(|(_, row)| row.covered > 0) {
            self.add(slot, row, other.latest);
        }
    }

    /// Extends it to at least these operations.
    fn extend(&mut self, seqs: SeqRange) {
        let first = self.seqs.first().min(seqs.first());
        let last = self.seqs.last().max(seqs.last());
        if let Some(seqs) = SeqRange::new(first, last).filter(|seqs| *seqs != self.seqs) {
            self.seqs = seqs;
            self.missing = self.rows.len();
        }
    }

    /// Reports with their slots.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, &Row)> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.count > 0)
    }

    /// By how much each host enqueued the operations before the median one, seconds, with a constant
    /// per rank, since their clocks differ; with the number of operations. Empty if it is not known
    /// of all.
    pub(super) fn advances(&self) -> Vec<(usize, f64, f64)> {
        let rows = || self.rows().map(|(slot, row)| (slot, row.enqueued(), row));
        let enqueued: Vec<f64> = rows().map(|(_, at, _)| at).collect();
        let are_known = enqueued.iter().all(|at| at.is_finite());
        let Some(middle) = median(&enqueued).filter(|_| are_known) else {
            return Vec::new();
        };
        rows()
            .map(|(slot, at, row)| (slot, middle - at, f64::from(row.count)))
            .collect()
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
        } else if most == fewest
            || most >= MANY && f64::from(most - fewest) <= MAX_DIFFERENCE * f64::from(most)
        {
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
    /// Time at which its first report was received.
    since: Nanos,
    /// Contains sends and receives.
    pub(super) has_transfers: bool,
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
