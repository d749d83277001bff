//! Blocks of consecutive operations of one communicator, and their sums: which operations a block
//! has, and when it is reported.

use std::collections::BTreeMap;

use fleet_proto::metric;

use crate::block_size::{MAX_EXPONENT, exponent};
use crate::event::Op;
use crate::operation_sums::signed_millis;
use crate::operation_sums::times::{RootedTimes, Times};
use crate::signal::{Block, CommId, Lead, Point, Source, Value};

/// Intended duration of a block of a process with few communicators, nanoseconds.
const TARGET_NS: f64 = 5e8;

/// Number of communicators from which on blocks last longer, so that the number of points per
/// second stays the same; and the longest intended duration, nanoseconds.
const FEW_CHANNELS: u32 = 4;
const MAX_TARGET_NS: f64 = 4e9;

/// Duration after which a block ends early, at a multiple of an eighth of its size, nanoseconds.
const LONG_NS: u64 = 1_500_000_000;
const EARLY_PARTS: u32 = 3;

/// Time between two measurements of the rate, nanoseconds: several iterations of most jobs.
const MEASURE_NS: u64 = 2_000_000_000;

/// So many blocks in so many nanoseconds are a job that has become faster, such as after its start:
/// the rate is measured at once.
const FLOOD_BLOCKS: u64 = 8;
const FLOOD_NS: u64 = 500_000_000;

/// Largest number of communicators of a process that are summed.
const MAX_CHANNELS: usize = 1024;

/// Time after the last operation of a block until it is reported as it is, nanoseconds. Operations
/// that come in bursts have ended long before the next burst.
pub(super) const IDLE_NS: u64 = 1_000_000_000;

/// Open blocks of one process.
#[derive(Debug)]
pub(super) struct OpenBlocks {
    source: Source,
    channels: BTreeMap<Channel, ChannelSums>,
    points: Vec<Point>,
    left_out: u64,
}

/// Operation that has ended, as far as its block depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) seq: u64,
    pub(super) op: Op,
    /// Instant at which its end was observed, nanoseconds.
    pub(super) ts_ns: u64,
}

/// Operations that are numbered together: the collectives of a communicator, or the transfers of one
/// rank. Both ends of a transfer know its number only where the communicator has two ranks; elsewhere
/// the transfers of a rank are used for its pace and its leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Channel {
    pub(super) comm_id: u64,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) is_transfer: bool,
}

/// Blocks of one channel.
#[derive(Debug, Default)]
pub(super) struct ChannelSums {
    exponent: u32,
    /// Operation and time from which on the rate is measured.
    measured_from: Option<(u64, u64)>,
    has_rate: bool,
    /// First operation after all blocks so far.
    next: u64,
    /// The latest block, and the one before it while rows of it may be missing.
    latest: Option<OpenSums>,
    before: Option<OpenSums>,
}

/// Sums of an open block.
#[derive(Debug, Clone)]
pub(super) struct OpenSums {
    pub(super) first: u64,
    /// First operation after it.
    pub(super) end: u64,
    /// Number of operations that have ended, with times or without.
    pub(super) ended: u64,
    pub(super) times: Times,
    pub(super) rooted: RootedTimes,
    pub(super) op: Op,
    pub(super) first_ts_ns: u64,
    pub(super) last_ts_ns: u64,
}

impl OpenBlocks {
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            channels: BTreeMap::new(),
            points: Vec::new(),
            left_out: 0,
        }
    }

    /// The block of an operation, which counts as ended; `None` if it is in no block.
    pub(super) fn record(&mut self, channel: Channel, ended: Ended) -> Option<&mut OpenSums> {
        let is_known = self.channels.contains_key(&channel);
        if !is_known && self.channels.len() >= MAX_CHANNELS {
            self.left_out += 1;
            return None;
        }
        let target_ns = self.target_ns();
        let sums = self.channels.entry(channel).or_default();
        let block = sums.block_of(ended, target_ns, |closed| {
            self.points.push(point(self.source, channel, &closed));
        });
        if block.is_none() {
            self.left_out += 1;
        }
        let block = block?;
        block.ended += 1;
        block.last_ts_ns = block.last_ts_ns.max(ended.ts_ns);
        Some(block)
    }

    /// The open block with an operation that was recorded before, or the latest one.
    pub(super) fn find(&mut self, channel: Channel, seq: u64) -> Option<&mut OpenSums> {
        let sums = self.channels.get_mut(&channel)?;
        match &mut sums.before {
            Some(before) if before.contains(seq) => Some(before),
            _ => sums.latest.as_mut(),
        }
    }

    /// Reports the blocks of a channel of which all operations have ended.
    pub(super) fn take_complete(&mut self, channel: Channel) {
        let Some(sums) = self.channels.get_mut(&channel) else {
            return;
        };
        for open in [&mut sums.before, &mut sums.latest] {
            if let Some(complete) = open.take_if(|open| open.is_complete()) {
                self.points.push(point(self.source, channel, &complete));
            }
        }
    }

    /// Reports the blocks of all channels of which all operations have ended.
    pub(super) fn take_all_complete(&mut self) {
        for (channel, sums) in &mut self.channels {
            for open in [&mut sums.before, &mut sums.latest] {
                if let Some(complete) = open.take_if(|open| open.is_complete()) {
                    self.points.push(point(self.source, *channel, &complete));
                }
            }
        }
    }

    /// Reports the blocks to which nothing was added for a while at `now_ns`.
    pub(super) fn tick(&mut self, now_ns: u64) {
        self.close(|open| now_ns.saturating_sub(open.last_ts_ns) > IDLE_NS);
    }

    /// Reports all blocks as they are.
    pub(super) fn finish(&mut self) {
        self.close(|_| true);
    }

    /// Drops all blocks.
    pub(super) fn clear(&mut self) {
        self.channels.clear();
    }

    /// Returns the points since the last call.
    pub(super) fn take_points(&mut self) -> Vec<Point> {
        std::mem::take(&mut self.points)
    }

    /// Number of operations that are in no block: those of too many communicators, and those that
    /// came too late.
    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    fn target_ns(&self) -> f64 {
        let channels = u32::try_from(self.channels.len()).unwrap_or(u32::MAX);
        let times = f64::from(channels.max(FEW_CHANNELS)) / f64::from(FEW_CHANNELS);
        (TARGET_NS * times).min(MAX_TARGET_NS)
    }

    fn close(&mut self, is_due: impl Fn(&OpenSums) -> bool) {
        for (channel, sums) in &mut self.channels {
            let before = sums.before.take_if(|open| is_due(open));
            let latest = sums.latest.take_if(|open| is_due(open));
            if let Some(latest) = &latest {
                // Its other operations belong to the next block.
                sums.next = latest.last_ended() + 1;
            }
            for open in before.into_iter().chain(latest) {
                let open = open.cut_at_last();
                self.points.push(point(self.source, *channel, &open));
            }
        }
    }
}

impl ChannelSums {
    /// The block of an operation, which is opened if it is the next one; `None` if it was reported
    /// before. `close` takes the blocks that end by it.
    fn block_of(
        &mut self,
        ended: Ended,
        target_ns: f64,
        mut close: impl FnMut(OpenSums),
    ) -> Option<&mut OpenSums> {
        let seq = ended.seq;
        if let Some(latest) = &mut self.latest
            && latest.contains(seq)
            && latest.ends_before(seq, ended.ts_ns)
        {
            latest.end = seq;
            self.next = seq;
        }
        if seq >= self.next {
            self.measure(seq, ended.ts_ns, target_ns);
            let fits = |exponent: &u32| seq >> exponent << exponent >= self.next;
            let exponents = (0..=self.exponent).rev();
            let exponent = exponents.into_iter().find(fits).unwrap_or(0);
            let first = seq >> exponent << exponent;
            let opened = OpenSums::new(first, first.checked_add(1 << exponent)?, ended);
            self.next = opened.end;
            if let Some(older) = std::mem::replace(&mut self.before, self.latest.replace(opened)) {
                close(older);
            }
        }
        let both = [&mut self.latest, &mut self.before];
        let mut open = both.into_iter().filter_map(Option::as_mut);
        open.find(|open| open.contains(seq))
    }

    /// Measures the rate of operations, and chooses the size of the next blocks. Before the first
    /// measurement, each block is twice as large as the one before.
    #[expect(
        clippy::cast_precision_loss,
        reason = "durations and numbers of operations of seconds are far below 2^53"
    )]
    fn measure(&mut self, seq: u64, ts_ns: u64, target_ns: f64) {
        let (from_seq, from_ns) = *self.measured_from.get_or_insert((seq, ts_ns));
        let elapsed_ns = ts_ns.saturating_sub(from_ns);
        let operations = seq.saturating_sub(from_seq);
        let is_flood = elapsed_ns >= FLOOD_NS && operations >= FLOOD_BLOCKS << self.exponent;
        if elapsed_ns < MEASURE_NS && !is_flood || operations == 0 {
            let is_growing = !self.has_rate && operations > 0;
            self.exponent = (self.exponent + u32::from(is_growing)).min(MAX_EXPONENT);
            return;
        }
        self.measured_from = Some((seq, ts_ns));
        let wanted = exponent(target_ns, elapsed_ns as f64 / operations as f64);
        // A rate between two sizes does not change them all the time.
        let is_close = self.has_rate && wanted.abs_diff(self.exponent) <= 1;
        let margin = if is_close { 0.75 } else { 1.0 };
        let is_sure = exponent(target_ns * margin, elapsed_ns as f64 / operations as f64) == wanted;
        if is_sure || !is_close {
            self.exponent = wanted;
        }
        self.has_rate = true;
    }
}

impl OpenSums {
    fn new(first: u64, end: u64, operation: Ended) -> Self {
        Self {
            first,
            end,
            ended: 0,
            times: Times::default(),
            rooted: RootedTimes::default(),
            op: operation.op,
            first_ts_ns: operation.ts_ns,
            last_ts_ns: operation.ts_ns,
        }
    }

    fn contains(&self, seq: u64) -> bool {
        (self.first..self.end).contains(&seq)
    }

    /// Returns whether the block lasts long and may end before operation `seq`.
    fn ends_before(&self, seq: u64, ts_ns: u64) -> bool {
        let exponent = (self.end - self.first).checked_ilog2().unwrap_or(0);
        let may_end = seq.trailing_zeros() >= exponent.saturating_sub(EARLY_PARTS);
        seq > self.first && may_end && ts_ns.saturating_sub(self.first_ts_ns) > LONG_NS
    }

    fn is_complete(&self) -> bool {
        self.ended >= self.end - self.first
    }

    /// Number of the last operation that has ended, if none is missing before it.
    fn last_ended(&self) -> u64 {
        self.first
            .saturating_add(self.ended.max(1) - 1)
            .min(self.end - 1)
    }

    /// Time from an instant to the end of the block's first operation, milliseconds.
    pub(super) fn until_first_ms(&self, at_ns: u64) -> f64 {
        signed_millis(i128::from(self.first_ts_ns) - i128::from(at_ns))
    }

    /// Leads up to the end of the last operation instead of the first.
    #[expect(
        clippy::cast_precision_loss,
        reason = "blocks have at most 2^20 operations"
    )]
    fn lead_until_last(&self) -> Option<Lead> {
        let span_ms = -self.until_first_ms(self.last_ts_ns);
        self.times.lead.map(|lead| Lead {
            sum_ms: span_ms.mul_add(self.times.durations.count as f64, lead.sum_ms),
            min_ms: lead.min_ms + span_ms,
        })
    }

    fn cut_at_last(self) -> Self {
        Self {
            end: self.last_ended() + 1,
            ..self
        }
    }
}

/// Point of a block.
fn point(source: Source, channel: Channel, open: &OpenSums) -> Point {
    let times = open.times.with(&open.rooted.of_turns(channel.size));
    Point {
        metric: metric::DURATION,
        start_ns: open.first_ts_ns,
        time_ns: open.last_ts_ns,
        block: Block {
            comm: CommId::new(channel.comm_id),
            comm_rank: channel.rank,
            comm_nranks: channel.size,
            source,
            op: open.op,
            seq_first: open.first,
            seq_last: open.end - 1,
            iterations: None,
            role: None,
        },
        value: Value::Durations {
            summary: times.durations,
            lead: if source == Source::Host {
                open.lead_until_last()
            } else {
                times.lead
            },
        },
    }
}
