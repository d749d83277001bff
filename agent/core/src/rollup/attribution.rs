//! Attribution of samples to blocks. The source sums up activity and delays over windows of about a
//! second, whose ends are not those of blocks: each block gets the share of the window for which it
//! was open, so the evidence of a block does not depend on when the counters were read.

use std::collections::VecDeque;

use crate::event::{Activity, ActivitySample, DelaySample, Delays};
use crate::rollup::evidence;
use crate::signal::{Block, Point};

/// Time after which a block whose windows are not complete is reported as it is, nanoseconds: the
/// source has stopped to read its counters.
const MAX_WAIT_NS: u64 = 5_000_000_000;

/// Sums of the source over a window.
#[derive(Debug, Clone)]
pub enum Sample {
    /// Activity of the process.
    Activity(ActivitySample),
    /// Delays of the process.
    Delays(Box<DelaySample>),
}

impl Sample {
    /// Returns the beginning and the end of its window, nanoseconds.
    fn window(&self) -> (u64, u64) {
        match self {
            Self::Activity(sample) => (sample.from_ns, sample.ts_ns),
            Self::Delays(sample) => (sample.from_ns, sample.ts_ns),
        }
    }
}

/// Blocks of the busiest communicator that samples may belong to, oldest first.
#[derive(Debug, Default)]
pub(super) struct SampledBlocks {
    blocks: VecDeque<SampledBlock>,
    /// Beginning of the first block.
    began_ns: Option<u64>,
    activity_until_ns: Option<u64>,
    delays_until_ns: Option<u64>,
}

#[derive(Debug)]
struct SampledBlock {
    from_ns: u64,
    /// Beginning of the next block.
    until_ns: Option<u64>,
    state: State,
    activity: Activity,
    delays: Option<Delays>,
}

#[derive(Debug)]
enum State {
    Open,
    Closed(Closed),
    Discarded,
}

/// Block of which everything but its samples is known.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) block: Block,
    pub(super) start_ns: u64,
    pub(super) time_ns: u64,
}

impl SampledBlocks {
    /// Begins a block, which ends the one before.
    pub(super) fn begin(&mut self, entry_ns: u64) {
        if let Some(last) = self.blocks.back_mut() {
            last.until_ns = Some(entry_ns);
        }
        self.began_ns.get_or_insert(entry_ns);
        self.blocks.push_back(SampledBlock {
            from_ns: entry_ns,
            until_ns: None,
            state: State::Open,
            activity: Activity::default(),
            delays: None,
        });
    }

    /// Closes the block that began at `from_ns`.
    pub(super) fn close(&mut self, from_ns: u64, closed: Closed) {
        self.end(from_ns, State::Closed(closed));
    }

    /// Discards the block that began at `from_ns`, with its part of the samples.
    pub(super) fn discard(&mut self, from_ns: u64) {
        self.end(from_ns, State::Discarded);
    }

    fn end(&mut self, from_ns: u64, state: State) {
        let is_open = |block: &&mut SampledBlock| block.from_ns == from_ns && block.state.is_open();
        if let Some(block) = self.blocks.iter_mut().find(is_open) {
            block.state = state;
        }
    }

    /// Adds a sample to the blocks that were open in its window. The time before the first block
    /// belongs to none; that of blocks which are already reported counts in the oldest that is not.
    pub(super) fn add(&mut self, sample: &Sample) {
        let (window_from_ns, to_ns) = sample.window();
        match sample {
            Sample::Activity(_) => self.activity_until_ns = self.activity_until_ns.max(Some(to_ns)),
            // The GPU's driver is read at other times than the kernel's counters.
            Sample::Delays(sample) if sample.delays.gpu_shared_by.is_some() => {}
            Sample::Delays(_) => self.delays_until_ns = self.delays_until_ns.max(Some(to_ns)),
        }
        let Some(began_ns) = self.began_ns else {
            return;
        };
        // A window without a length is a moment.
        let window_from_ns = window_from_ns.min(to_ns.saturating_sub(1));
        let mut from_ns = window_from_ns.max(began_ns);
        for block in &mut self.blocks {
            let end_ns = block.until_ns.map_or(to_ns, |until_ns| until_ns.min(to_ns));
            if from_ns >= end_ns {
                continue;
            }
            let share = Share {
                from: from_ns - window_from_ns,
                to: end_ns - window_from_ns,
                whole: to_ns - window_from_ns,
            };
            block.add(sample, share);
            from_ns = end_ns;
        }
    }

    /// Returns the points of the blocks whose windows are complete, in order.
    pub(super) fn take_complete(&mut self) -> Vec<Point> {
        let newest_ns = self.blocks.back().map_or(0, |block| block.from_ns);
        let covered_ns = [self.activity_until_ns, self.delays_until_ns];
        let covered_ns = covered_ns.into_iter().flatten().min();
        let is_complete = |block: &mut SampledBlock| {
            let is_covered = |until_ns: u64| {
                covered_ns.is_some_and(|covered_ns| covered_ns >= until_ns)
                    || newest_ns.saturating_sub(until_ns) > MAX_WAIT_NS
            };
            !block.state.is_open() && block.until_ns.is_some_and(is_covered)
        };
        let mut points = Vec::new();
        while let Some(block) = self.blocks.pop_front_if(is_complete) {
            points.extend(block.into_points());
        }
        points
    }

    /// Removes all blocks and returns the points of the closed ones as they are.
    pub(super) fn take_all(&mut self) -> Vec<Point> {
        let blocks = std::mem::take(&mut self.blocks).into_iter();
        blocks.flat_map(SampledBlock::into_points).collect()
    }
}

impl State {
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

impl SampledBlock {
    fn add(&mut self, sample: &Sample, share: Share) {
        match sample {
            Sample::Activity(sample) => {
                let activity = sample.activity.map(|amount| share.part_of(amount));
                self.activity.add(&activity);
            }
            Sample::Delays(sample) => {
                let delays = sample.delays.map(|amount| share.part_of(amount));
                self.delays.get_or_insert_default().add(&delays);
            }
        }
    }

    fn into_points(self) -> Vec<Point> {
        let State::Closed(closed) = self.state else {
            return Vec::new();
        };
        let values = evidence::values(&self.activity, self.delays.as_ref());
        let point = |(metric, value)| Point {
            metric,
            start_ns: closed.start_ns,
            time_ns: closed.time_ns,
            block: closed.block.clone(),
            value,
        };
        values.map(point).collect()
    }
}

/// Part of a window, nanoseconds after its beginning.
#[derive(Debug, Clone, Copy)]
struct Share {
    from: u64,
    to: u64,
    whole: u64,
}

impl Share {
    /// Returns the part of an amount. Parts that make up the window add up to the amount.
    fn part_of(self, amount: u64) -> u64 {
        let until = |ns: u64| {
            let part = u128::from(amount) * u128::from(ns) / u128::from(self.whole.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        until(self.to).saturating_sub(until(self.from))
    }
}

#[cfg(test)]
mod tests;
