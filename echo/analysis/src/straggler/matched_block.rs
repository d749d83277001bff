//! Blocks of which ranks have reported: whether they can be compared, and how.

use echo_core::model::event::{SeqRange, Source};
use echo_core::stats::median;

use crate::straggler::block::BlockSum;

/// Largest difference between the numbers of operations of two ranks, as a share, in blocks of at
/// least so many operations. Their means are compared: plugins drop operations at random, and of
/// many operations those that are left are like the others. In a short block one operation may be the
/// one that matters.
const MAX_DIFFERENCE: f64 = 0.25;
const MANY: u32 = 32;

/// Without the times of one rank: if the shortest duration of all others is so many times the usual
/// one, none of those was the last to arrive; below the other limit one of them was. In between it is
/// not known.
const ABSENT: f32 = 4.0;
const PRESENT: f32 = 1.5;

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

/// Returns true for a duration that tells something. Senders may report any number.
pub(super) fn is_known(duration: f32) -> bool {
    duration > 0.0 && duration.is_finite()
}

/// Returns true if a rank summed about as many operations as most.
fn is_alike(count: u32, most: u32) -> bool {
    let few = MAX_DIFFERENCE * f64::from(most);
    count == most || most >= MANY && f64::from(most - count) <= few
}

/// Number of operations of a range.
pub(super) fn length(seqs: SeqRange) -> u64 {
    (seqs.last() - seqs.first()).saturating_add(1)
}

/// Block of which some or all ranks have reported, by slot.
#[derive(Debug)]
pub(super) struct MatchedBlock {
    pub(super) seqs: SeqRange,
    source: Source,
    rows: Vec<Row>,
    /// Number of ranks that have not reported all of its operations.
    pub(super) missing: usize,
    /// Latest end, job time, seconds.
    pub(super) latest: f64,
}

/// What is known of a rank without times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    /// None of the others was the last to arrive.
    Last,
    /// One of the others was; it is taken to be like the mean of them.
    Like,
}

/// Result of comparing the ranks of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Every rank reported the same number of operations.
    Complete,
    /// A rank is missing.
    Incomplete,
    /// All ranks but the one in this slot summed alike; it has lost times.
    Lacking(usize, Absent),
    /// The ranks summed different numbers of operations.
    Unequal,
}

impl MatchedBlock {
    pub(super) fn new(seqs: SeqRange, size: usize, source: Source) -> Self {
        Self {
            seqs,
            source,
            rows: vec![Row::MISSING; size],
            missing: size,
            latest: f64::NEG_INFINITY,
        }
    }

    /// Adds a report. One about operations that the rank has reported already is ignored.
    pub(super) fn add(&mut self, slot: usize, row: &Row, end: f64) {
        let all = length(self.seqs);
        let fits = |own: &&mut Row| own.covered.saturating_add(row.covered) <= all;
        if let Some(own) = self.rows.get_mut(slot).filter(fits) {
            own.add(row, self.source);
            self.missing -= usize::from(own.covered == all);
            self.latest = self.latest.max(end);
        }
    }

    /// Extends it to the operations of an overlapping one.
    pub(super) fn merge(&mut self, other: &Self) {
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

    /// Whether the law can be applied. `usual` is the shortest duration of an operation without waiting,
    /// seconds.
    pub(super) fn comparison(&self, usual: f32) -> Comparison {
        let (most, all) = (self.operations(), length(self.seqs));
        let is_whole = |row: &Row| row.covered == all && is_alike(row.count, most);
        let rows = self.rows.iter().enumerate();
        let mut others = rows.filter(|(_, row)| !is_whole(row));
        match (others.next(), others.next()) {
            (None, _) => Comparison::Complete,
            (Some((slot, _)), None) if self.can_lack_one() => self.without(slot, usual),
            _ => self.left_out(),
        }
    }

    /// Returns true if the times of one rank may be missing: not for single operations, and not where
    /// its report is missing, which tells nothing about its host.
    fn can_lack_one(&self) -> bool {
        self.missing == 0 && self.rows.len() > 2 && self.operations() >= MANY
    }

    /// Comparison without the times of one rank.
    fn without(&self, slot: usize, usual: f32) -> Comparison {
        let sums = self.scaled().filter(|(other, _)| *other != slot);
        let shortest = sums.map(|(_, sum)| sum).fold(f32::INFINITY, f32::min);
        let times = shortest / (usual * self.operations() as f32);
        if is_known(usual) && times > ABSENT {
            Comparison::Lacking(slot, Absent::Last)
        } else if is_known(usual) && times < PRESENT {
            Comparison::Lacking(slot, Absent::Like)
        } else {
            self.left_out()
        }
    }

    const fn left_out(&self) -> Comparison {
        if self.missing > 0 {
            Comparison::Incomplete
        } else {
            Comparison::Unequal
        }
    }

    /// Slots with their sums, scaled to the same number of operations.
    pub(super) fn scaled(&self) -> impl Iterator<Item = (usize, f32)> {
        let most = self.operations() as f32;
        self.rows()
            .map(move |(slot, row)| (slot, row.sum * (most / row.count as f32)))
    }

    /// Slots with their sums, scaled to the same number of operations, with what its comparison tells of
    /// a rank without times.
    pub(super) fn sums(&self, comparison: Comparison, usual: f32) -> Vec<(usize, f32)> {
        let Comparison::Lacking(slot, absent) = comparison else {
            return self.scaled().collect();
        };
        let mut sums: Vec<(usize, f32)> = self.scaled().filter(|(own, _)| *own != slot).collect();
        let own = match absent {
            Absent::Last => usual * self.operations() as f32,
            Absent::Like => sums.iter().map(|(_, sum)| sum).sum::<f32>() / sums.len() as f32,
        };
        sums.push((slot, own));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::{Absent, Comparison, MatchedBlock, Row};
    use echo_core::model::event::{SeqRange, Source};

    /// Block of 64 operations of three ranks, of which the last summed only ten; each operation of the
    /// others took `inside_s`.
    fn lacking(inside_s: f32) -> MatchedBlock {
        let seqs = SeqRange::new(0, 63).expect("operations");
        let mut block = MatchedBlock::new(seqs, 3, Source::Device);
        for (slot, count) in [64_u32, 64, 10].into_iter().enumerate() {
            let row = Row {
                covered: 64,
                count,
                sum: inside_s * count as f32,
                least: inside_s,
                lead: 0.0,
                least_lead: 0.0,
                end: 1.0,
            };
            block.add(slot, &row, 1.0);
        }
        block
    }

    #[test]
    fn a_rank_without_times_was_the_last_if_no_other_one_can_have_been() {
        let block = lacking(0.010);
        assert_eq!(
            block.comparison(0.001),
            Comparison::Lacking(2, Absent::Last)
        );
        let sums = block.sums(block.comparison(0.001), 0.001);
        assert_eq!(sums, [(0, 0.64), (1, 0.64), (2, 0.064)]);
    }

    #[test]
    fn it_is_like_the_others_if_one_of_them_was_the_last() {
        let block = lacking(0.001);
        assert_eq!(
            block.comparison(0.001),
            Comparison::Lacking(2, Absent::Like)
        );
        let sums = block.sums(block.comparison(0.001), 0.001);
        assert_eq!(sums, [(0, 0.064), (1, 0.064), (2, 0.064)]);
    }

    #[test]
    fn a_block_that_does_not_tell_is_left_out() {
        assert_eq!(lacking(0.002).comparison(0.001), Comparison::Unequal);
        for unknown in [f32::INFINITY, 0.0, -1.0, f32::NAN] {
            assert_eq!(lacking(0.010).comparison(unknown), Comparison::Unequal);
        }
    }
}
