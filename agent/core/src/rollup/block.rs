//! Open block.

use std::collections::BTreeMap;

use crate::correlate::{CompletedOp, Completion, Issued, OpRef, Waited};
use crate::event::{Activity, Op};
use crate::exemplar::Sampler;
use crate::iteration::Pattern;
use crate::signal::{Anchor, Exemplar, Summary, Value, millis};

/// Operations of one communicator since the last block end.
#[derive(Debug)]
pub(super) struct OpenBlock {
    pub(super) seq_first: u64,
    pub(super) seq_last: u64,
    pub(super) first_entry_ns: u64,
    pub(super) last_entry_ns: u64,
    pub(super) waits: BTreeMap<Op, Wait>,
    pub(super) totals: ProcessTotals,
    pub(super) device: DevicePart,
    /// Set if a part of it was not seen, so that it is not comparable with the block of a peer.
    pub(super) is_broken: bool,
    ops: BTreeMap<Op, u64>,
    signatures: BTreeMap<u64, u64>,
    size: BlockSize,
}

/// Limits of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockSize {
    /// Number of operations, as an exponent of two.
    pub(super) exponent: u32,
    /// Duration after which it ends early, nanoseconds.
    pub(super) max_ns: u64,
}

/// An early end is at a multiple of the block's operations divided by two to this power, so that
/// ranks whose blocks end early at different times still share most of their ends.
const EARLY_PARTS: u32 = 4;

/// Waits for one operation of a block.
#[derive(Debug, Default)]
pub(super) struct Wait {
    pub(super) summary: Summary,
    pub(super) sampler: Sampler,
}

/// Device measurements of a block.
#[derive(Debug, Default)]
pub(super) struct DevicePart {
    pub(super) waits: BTreeMap<Op, Wait>,
    pub(super) queue: Summary,
    pub(super) blocked: Summary,
    pub(super) completion: Option<Completion>,
    pub(super) end_ns: u64,
    /// Number of reported operations, with times or without.
    pub(super) reported: u64,
    /// Operations of the process's iterations, with and without times.
    pub(super) timed: TimedCount,
}

/// Number of reported operations, and of those without times.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimedCount {
    pub(super) reported: u64,
    pub(super) untimed: u64,
}

impl TimedCount {
    /// Records a completed operation.
    pub(super) fn record(&mut self, completed: &CompletedOp) {
        self.reported += 1;
        self.untimed += u64::from(completed.times.is_none());
    }

    /// Adds other counts.
    pub(super) fn add(&mut self, other: Self) {
        self.reported += other.reported;
        self.untimed += other.untimed;
    }

    /// Returns whether sums over the timed operations are comparable with sums of other ranks.
    pub(super) fn is_comparable(self) -> bool {
        self.untimed.saturating_mul(4) <= self.reported
    }
}

/// Measurements of the whole process while a block is open.
#[derive(Debug, Default)]
pub(super) struct ProcessTotals {
    pub(super) host_gap: Summary,
    pub(super) blocked: Summary,
    pub(super) arrival: Summary,
    pub(super) anchor: Option<Anchor>,
    pub(super) completion: Option<Completion>,
    /// Activity that the source reports event by event.
    pub(super) activity: Activity,
}

impl Wait {
    /// Returns the value of the point of these waits.
    pub(super) fn into_value(self) -> Value {
        Value::Summary {
            summary: self.summary,
            exemplars: self.sampler.into_exemplars(),
            anchor: None,
        }
    }
}

impl OpenBlock {
    /// Opens a block at its first operation. Blocks end at every multiple of 2^`exponent`, so one
    /// that opens elsewhere is shorter and the next one is aligned.
    pub(super) fn new(size: BlockSize, first: &Issued, anchor: Option<Anchor>) -> Self {
        Self {
            seq_first: first.at.seq,
            seq_last: first.at.seq,
            first_entry_ns: first.entry_ns,
            last_entry_ns: first.entry_ns,
            waits: BTreeMap::new(),
            totals: ProcessTotals {
                anchor,
                ..ProcessTotals::default()
            },
            // Peers have its first operations as well.
            device: DevicePart::default(),
            is_broken: first.missed > 0 && first.at.seq.trailing_zeros() < size.exponent,
            ops: BTreeMap::new(),
            signatures: BTreeMap::new(),
            size,
        }
    }

    /// Returns whether an operation entered at `entry_ns` belongs to this block.
    pub(super) fn accepts(&self, seq: u64, entry_ns: u64) -> bool {
        let exponent = self.size.exponent;
        let is_inside = seq >> exponent == self.seq_first >> exponent;
        let may_end_early = seq.trailing_zeros() >= exponent.saturating_sub(EARLY_PARTS);
        let is_long = entry_ns.saturating_sub(self.first_entry_ns) > self.size.max_ns;
        is_inside && !(may_end_early && is_long)
    }

    pub(super) fn add_issued(&mut self, issued: &Issued) {
        let is_spoiled = issued.missed > 0 && !issued.is_filled;
        self.is_broken |= is_spoiled && issued.at.seq != self.seq_first;
        self.seq_last = issued.at.seq;
        self.last_entry_ns = issued.entry_ns;
        *self.ops.entry(issued.at.op).or_default() += 1;
        *self.signatures.entry(issued.signature).or_default() += 1;
        self.totals
            .arrival
            .add(millis(issued.entry_ns.saturating_sub(self.first_entry_ns)));
    }

    /// Adds a wait. A wait that ends after the block of its operation was closed is counted here,
    /// without an exemplar, rather than nowhere.
    pub(super) fn add_wait(&mut self, at: OpRef, waited: &Waited, sampled: bool) {
        let wait_ms = millis(waited.return_ns.saturating_sub(waited.entry_ns));
        let is_here = self.contains(at.seq);
        let wait = self.waits.entry(at.op).or_default();
        wait.summary.add(wait_ms);
        if is_here {
            let exemplar = Exemplar {
                seq: at.seq,
                time_ns: waited.return_ns,
                wait_ms,
            };
            wait.sampler.offer(exemplar, sampled);
        }
    }

    /// Adds a completed operation.
    pub(super) fn add_completed(&mut self, completed: &CompletedOp, sampled: bool) {
        let part = &mut self.device;
        part.reported += 1;
        let Some(times) = completed.times else { return };
        let wait_ms = millis(times.kernel_ns);
        let wait = part.waits.entry(completed.at.op).or_default();
        wait.summary.add(wait_ms);
        let exemplar = Exemplar {
            seq: completed.at.seq,
            time_ns: times.end_ns,
            wait_ms,
        };
        wait.sampler.offer(exemplar, sampled);
        part.queue.add(millis(times.queue_ns));
        part.end_ns = part.end_ns.max(times.end_ns);
    }

    /// Returns whether an operation belongs to this block.
    pub(super) fn contains(&self, seq: u64) -> bool {
        (self.seq_first..=self.seq_last).contains(&seq)
    }

    /// Returns the number of iterations that its operations amount to; `None` when none of them
    /// belongs to one.
    pub(super) fn iterations(&self, pattern: &Pattern) -> Option<f64> {
        Some(pattern.iterations(&self.signatures)).filter(|iterations| *iterations > 0.0)
    }

    /// Returns whether the GPU has reported all of its operations.
    pub(super) fn has_run(&self) -> bool {
        self.device.reported > self.seq_last - self.seq_first
    }

    /// Returns the most frequent operation, the first by name among equals.
    pub(super) fn busiest_op(&self) -> Op {
        let by_count = self
            .ops
            .iter()
            .max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0)));
        by_count.map_or(Op::AllReduce, |(op, _)| *op)
    }
}
