//! The blocks of one cohort until they are complete.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::{CommId, Rank};
use echo_core::model::event::{Anchor, Block, Event, Reading, SeqRange, Source, Summary};
use echo_core::stats::median;
use echo_core::units::{Nanos, Window};
use fleet_proto::metric;

use super::report::{Report, merged};
use super::{CohortBlock, MeanArrival, Member, PeriodReading};

/// Limit of open blocks per cohort; beyond it the oldest is closed with the reports received so
/// far.
const MAX_OPEN_BLOCKS: usize = 512;

/// Period readings of one rank that may wait for their block.
const MAX_PERIODS: usize = 1_024;

/// Communicator of each rank's block and its first entry, on the rank's own clock.
pub(super) type Begins = BTreeMap<Rank, (CommId, Nanos)>;

/// The ranks of a role, and the test for ranks that blocks wait for.
pub(super) type Awaited<'a> = (&'a BTreeSet<Rank>, &'a dyn Fn(Rank) -> bool);

#[derive(Debug, Default)]
pub(super) struct OpenBlocks {
    /// Communicator whose blocks each rank reports.
    comms: BTreeMap<Rank, CommId>,
    open: BTreeMap<SeqRange, BTreeMap<Rank, Report>>,
    periods: BTreeMap<Rank, BTreeMap<u64, PeriodReading>>,
    /// Durations of operations by the last of them, milliseconds.
    elapsed_ms: BTreeMap<Rank, BTreeMap<u64, f64>>,
    /// Iterations of the blocks that were closed.
    iterations: Option<f64>,
    reached: BTreeMap<Rank, u64>,
    /// Rank that had not passed the oldest block at the last check. The other ranks are checked
    /// only once it has.
    held_up_by: Option<Rank>,
    closed_through: Option<u64>,
}

impl OpenBlocks {
    /// Adds the event; returns false if its block has already been closed.
    pub(super) fn add(&mut self, event: &Event, block: &Block, rank: Rank) -> bool {
        let comm = self.comms.insert(rank, block.comm);
        if comm.is_some_and(|comm| comm != block.comm) {
            // The job has restarted under the same name, with new sequence numbers.
            let comms = std::mem::take(&mut self.comms);
            *self = Self {
                comms,
                ..Self::default()
            };
        }

        let Some(seqs) = block.seqs else {
            return true;
        };
        if event.metric.as_str() == metric::PERIOD {
            self.add_period(event, block, seqs, rank);
            return true;
        }
        if event.metric.as_str() == metric::ELAPSED {
            self.add_elapsed(event, seqs, rank);
            return true;
        }
        if self.closed_through.is_some_and(|last| seqs.first() <= last) {
            return false;
        }
        let Reading::Histogram(summary) = event.reading else {
            return true;
        };
        let report = self
            .open
            .entry(seqs)
            .or_default()
            .entry(rank)
            .or_insert_with(|| Report::from_event(event));
        report.iterations = block.iterations.or(report.iterations);
        match event.metric.as_str() {
            metric::HOST_GAP => report.gap = Some(summary),
            metric::BLOCKED => match block.source {
                Source::Host => report.host_blocked = Some(summary),
                Source::Device => report.device_blocked = Some(summary),
            },
            metric::ARRIVAL => {
                report.arrival = mean_arrival(summary, block.anchor);
                // Agents send the arrivals of a block last, so this rank has reported all of it.
                let reached = self.reached.entry(rank).or_default();
                *reached = (*reached).max(seqs.last() + 1);
            }
            _ => {}
        }
        true
    }

    /// Reports and periods held.
    #[cfg(test)]
    pub(super) fn stored(&self) -> usize {
        let reports: usize = self.open.values().map(BTreeMap::len).sum();
        let periods: usize = self.periods.values().map(BTreeMap::len).sum();
        reports + periods
    }

    fn add_period(&mut self, event: &Event, block: &Block, seqs: SeqRange, rank: Rank) {
        let ms = match event.reading {
            Reading::Double(ms) => ms,
            #[expect(clippy::cast_precision_loss, reason = "milliseconds far below 2^53")]
            Reading::Int(ms) => ms as f64,
            Reading::Histogram(_) => return,
        };
        let interval = event
            .start
            .and_then(|start| Window::new(start, event.timestamp));
        if let (Some(interval), Some(iterations)) = (interval, block.iterations) {
            let reading = PeriodReading {
                ms,
                iterations,
                interval,
            };
            let periods = self.periods.entry(rank).or_default();
            periods.insert(seqs.last(), reading);
            if periods.len() > MAX_PERIODS {
                periods.pop_first();
            }
        }
    }

    fn add_elapsed(&mut self, event: &Event, seqs: SeqRange, rank: Rank) {
        let Reading::Double(elapsed_ms) = event.reading else {
            return;
        };
        let known = self.elapsed_ms.entry(rank).or_default();
        known.insert(seqs.last(), elapsed_ms);
        if known.len() > MAX_PERIODS {
            known.pop_first();
        }
    }

    /// Removes and returns the oldest block if every awaited member has reported it or a later one,
    /// with each rank's communicator and its first entry on the rank's own clock. Ranks choose
    /// their block sizes independently, so overlapping blocks are merged.
    pub(super) fn close_next(
        &mut self,
        members: Awaited<'_>,
        n_expected: usize,
    ) -> Option<(CohortBlock, Begins)> {
        loop {
            let seqs = self.oldest()?;
            if !self.is_due(seqs, members) && self.open.len() <= MAX_OPEN_BLOCKS {
                return None;
            }
            let reports = self.take_reports(seqs);
            self.closed_through = self.closed_through.max(Some(seqs.last()));
            let period = self.take_period(seqs);
            let mut elapsed_ms = self.take_elapsed(seqs);
            let begins = reports
                .iter()
                .filter_map(|(rank, report)| Some((*rank, (*self.comms.get(rank)?, report.start))))
                .collect();
            let Some(mut block) = cohort_block(seqs, reports, n_expected, period) else {
                continue;
            };
            for member in &mut block.members {
                member.elapsed_ms = elapsed_ms.remove(&member.rank);
            }
            block.before = self.iterations.unwrap_or_else(|| begin_of(&block));
            self.iterations = Some(block.end_iteration());
            return Some((block, begins));
        }
    }

    /// The oldest range of operations that contains the end of every block that begins in it.
    fn oldest(&self) -> Option<SeqRange> {
        let oldest = self.open.keys().next()?;
        let mut last = oldest.last();
        for seqs in self.open.keys() {
            if seqs.first() > last {
                break;
            }
            last = last.max(seqs.last());
        }
        SeqRange::new(oldest.first(), last)
    }

    /// Reports of these operations by rank. A rank that did not report all of them is left out.
    fn take_reports(&mut self, seqs: SeqRange) -> BTreeMap<Rank, Report> {
        let mut parts: BTreeMap<Rank, Vec<(SeqRange, Report)>> = BTreeMap::new();
        while let Some(entry) = self.open.first_entry()
            && entry.key().first() <= seqs.last()
        {
            let (part, reports) = entry.remove_entry();
            for (rank, report) in reports {
                parts.entry(rank).or_default().push((part, report));
            }
        }
        let merged = parts
            .into_iter()
            .filter_map(|(rank, parts)| Some((rank, merged(seqs, parts)?)));
        merged.collect()
    }

    /// Reported durations of the operations up to the end of the block, by rank.
    fn take_elapsed(&mut self, seqs: SeqRange) -> BTreeMap<Rank, f64> {
        let mut taken = BTreeMap::new();
        for (rank, known) in &mut self.elapsed_ms {
            let later = known.split_off(&(seqs.last() + 1));
            let due = std::mem::replace(known, later).into_values();
            taken.extend(due.reduce(|sum, next| sum + next).map(|sum| (*rank, sum)));
        }
        taken
    }

    /// Returns true if some ranks are awaited and all of them have passed the block.
    fn is_due(&mut self, seqs: SeqRange, (members, is_awaited): Awaited<'_>) -> bool {
        let reached = &self.reached;
        let has_passed = |rank: Rank| reached.get(&rank).is_some_and(|next| *next > seqs.last());
        let holds_up = |rank: Rank| is_awaited(rank) && !has_passed(rank);
        if self
            .held_up_by
            .is_some_and(|rank| members.contains(&rank) && holds_up(rank))
        {
            return false;
        }
        // Continues from there: the ranks before it have usually passed, in any order of reports.
        let last = self.held_up_by.unwrap_or(Rank::new(0));
        let around = members.range(last..).chain(members.range(..last));
        self.held_up_by = around.copied().find(|rank| holds_up(*rank));
        self.held_up_by.is_none() && members.iter().any(|rank| is_awaited(*rank))
    }

    /// Median of the ranks' readings whose completion fell into the block.
    fn take_period(&mut self, seqs: SeqRange) -> Option<PeriodReading> {
        let mut readings = Vec::new();
        for periods in self.periods.values_mut() {
            let later = periods.split_off(&(seqs.last() + 1));
            let mut taken = std::mem::replace(periods, later);
            let inside = taken.split_off(&seqs.first());
            let before = taken.into_values().next_back();
            readings.extend(inside.into_values().reduce(joined).or(before));
        }
        let middle =
            |of: fn(&PeriodReading) -> f64| median(&readings.iter().map(of).collect::<Vec<f64>>());
        let from = middle_instant(readings.iter().map(|reading| reading.interval.from()))?;
        let to = middle_instant(readings.iter().map(|reading| reading.interval.to()))?;
        Some(PeriodReading {
            ms: middle(|reading| reading.ms)?,
            iterations: middle(|reading| reading.iterations)?,
            interval: Window::new(from, to)?,
        })
    }
}

/// Merges two readings of one rank.
fn joined(one: PeriodReading, next: PeriodReading) -> PeriodReading {
    let iterations = one.iterations + next.iterations;
    let total_ms = one.ms.mul_add(one.iterations, next.ms * next.iterations);
    let interval = Window::new(one.interval.from(), next.interval.to());
    PeriodReading {
        ms: total_ms / iterations,
        iterations,
        interval: interval.unwrap_or(next.interval),
    }
}

/// Estimates the iterations before the first block of a communicator from that block.
#[expect(
    clippy::cast_precision_loss,
    reason = "sequence numbers stay far below 2^53"
)]
fn begin_of(block: &CohortBlock) -> f64 {
    let n_ops = (block.seqs.last() - block.seqs.first() + 1) as f64;
    block.seqs.first() as f64 * block.iterations / n_ops
}

fn mean_arrival(summary: Summary, anchor: Option<Anchor>) -> Option<MeanArrival> {
    let anchor = anchor?;
    Some(MeanArrival {
        anchor_seq: anchor.seq,
        mean_ms: anchor.offset_ms + summary.mean()?,
    })
}

fn cohort_block(
    seqs: SeqRange,
    reports: BTreeMap<Rank, Report>,
    n_expected: usize,
    period: Option<PeriodReading>,
) -> Option<CohortBlock> {
    // Unusual blocks, such as those of an evaluation, cover no iteration.
    let known = reports.values().filter_map(|report| report.iterations);
    let iterations = median(&known.collect::<Vec<f64>>()).unwrap_or(0.0);
    let from = middle_instant(reports.values().map(|report| report.start))?;
    let to = middle_instant(reports.values().map(|report| report.end))?;
    let time = Window::new(from, to.max(from.offset(1)))?;
    let members = reports
        .into_iter()
        .map(|(rank, report)| Member {
            rank,
            blocked: report.blocked(),
            gap: report.gap,
            elapsed_ms: None,
            arrival: report.arrival,
        })
        .collect();
    Some(CohortBlock {
        seqs,
        iterations,
        before: 0.0,
        time,
        members,
        n_expected,
        period,
        transfers: Vec::new(),
    })
}

/// Lower median of instants, exact in nanoseconds.
fn middle_instant(instants: impl Iterator<Item = Nanos>) -> Option<Nanos> {
    let mut sorted: Vec<Nanos> = instants.collect();
    sorted.sort_unstable();
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}
