//! The blocks of one cohort until they are complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_proto::metric;

use crate::ids::{CommId, Rank};
use crate::model::event::{Anchor, Block, Event, Origin, Reading, SeqRange, Source, Summary};
use crate::stats::median;
use crate::units::{Nanos, Window};

use super::{CohortBlock, MeanArrival, Member, PeriodReading};

/// Blocks that a cohort may hold open before the oldest is closed with whoever reported it.
const MAX_OPEN_BLOCKS: usize = 512;

/// Period readings of one rank that may wait for their block.
const MAX_PERIODS: usize = 1_024;

/// Communicator of each rank's block and its first entry, on the rank's own clock.
pub(super) type Begins = BTreeMap<Rank, (CommId, Nanos)>;

/// The ranks of a role, and which of them blocks wait for.
pub(super) type Awaited<'a> = (&'a BTreeSet<Rank>, &'a dyn Fn(Rank) -> bool);

#[derive(Debug, Default)]
pub(super) struct OpenBlocks {
    /// Communicator whose blocks each rank reports.
    comms: BTreeMap<Rank, CommId>,
    open: BTreeMap<SeqRange, BTreeMap<Rank, Report>>,
    periods: BTreeMap<Rank, BTreeMap<u64, PeriodReading>>,
    reached: BTreeMap<Rank, u64>,
    /// A rank that had not passed the oldest block when last asked. While it has not, nobody else need be asked.
    held_up_by: Option<Rank>,
    closed_through: Option<u64>,
}

#[derive(Debug, Clone)]
struct Report {
    origin: Arc<Origin>,
    start: Nanos,
    end: Nanos,
    iterations: Option<f64>,
    gap: Option<Summary>,
    blocked: Option<(Source, Summary)>,
    queue: Option<Summary>,
    busy: Option<Summary>,
    arrival: Option<MeanArrival>,
}

impl OpenBlocks {
    /// Files the event; false when its block has been closed already.
    pub(super) fn add(&mut self, event: &Event, block: &Block, rank: Rank) -> bool {
        let comm = self.comms.insert(rank, block.comm);
        if comm.is_some_and(|comm| comm != block.comm) {
            // The job has started anew under its old name, and its sequence numbers with it.
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
            .or_insert_with(|| Report {
                origin: Arc::clone(&event.origin),
                start: event.start.unwrap_or(event.timestamp),
                end: event.timestamp,
                iterations: None,
                gap: None,
                blocked: None,
                queue: None,
                busy: None,
                arrival: None,
            });
        report.iterations = block.iterations.or(report.iterations);
        match event.metric.as_str() {
            metric::HOST_GAP => report.gap = Some(summary),
            metric::QUEUE => report.queue = Some(summary),
            metric::BUSY => report.busy = Some(summary),
            // What a GPU knows of its waiting is nearer to the truth than what its host knows.
            metric::BLOCKED
                if report
                    .blocked
                    .is_none_or(|(known, _)| known <= block.source) =>
            {
                report.blocked = Some((block.source, summary));
            }
            metric::ARRIVAL => {
                report.arrival = mean_arrival(summary, block.anchor);
                // Agents send the arrivals of a block last, so this rank has said all about it.
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

    /// Takes out the oldest block if every one of the members that is awaited has reported it or a later one, together with
    /// each rank's communicator and its first entry on the rank's own clock. Blocks that cover no iteration are passed over.
    pub(super) fn close_next(
        &mut self,
        members: Awaited<'_>,
        n_expected: usize,
    ) -> Option<(CohortBlock, Begins)> {
        loop {
            let seqs = *self.open.keys().next()?;
            if !self.is_due(seqs, members) && self.open.len() <= MAX_OPEN_BLOCKS {
                return None;
            }
            let reports = self.open.remove(&seqs)?;
            self.closed_through = self.closed_through.max(Some(seqs.last()));
            let period = self.take_period(seqs);
            let begins = reports
                .iter()
                .filter_map(|(rank, report)| Some((*rank, (*self.comms.get(rank)?, report.start))))
                .collect();
            if let Some(block) = cohort_block(seqs, reports, n_expected, period) {
                return Some((block, begins));
            }
        }
    }

    /// Whether somebody is awaited, and all who are have passed the block.
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
        // On from there: whoever comes before has mostly passed, in whatever order they report.
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
            let taken = std::mem::replace(periods, later);
            readings.extend(taken.into_values().next_back());
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
    // Blocks off the beaten track, such as an evaluation, cover no iteration and are not compared.
    let known = reports.values().filter_map(|report| report.iterations);
    let iterations = median(&known.collect::<Vec<f64>>()).filter(|known| *known > 0.0)?;
    let from = middle_instant(reports.values().map(|report| report.start))?;
    let to = middle_instant(reports.values().map(|report| report.end))?;
    let time = Window::new(from, to.max(from.offset(1)))?;
    let members = reports
        .into_iter()
        .map(|(rank, report)| Member {
            rank,
            origin: report.origin,
            gap: report.gap,
            blocked: report.blocked.map(|(_, summary)| summary),
            blocked_source: report.blocked.map(|(source, _)| source),
            queue: report.queue,
            busy: report.busy,
            arrival: report.arrival,
        })
        .collect();
    Some(CohortBlock {
        seqs,
        iterations,
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
