//! Ordering of GPU rows by operation, and detection of rows that contain the times of another
//! operation. Pure.
//!
//! A row is a record of the profiler plugin about one operation. Collectives of one communicator
//! run one after the other. If the next one starts before a row's stop, that stop belongs to a
//! later operation: the plugin's thread came too late, and NCCL had reused the slot of the time. So
//! each row is held until the next operation of its communicator is known.
//!
//! NCCL numbers times on the host and on the GPU. Once the two numbers diverge, every later row of
//! the communicator has the times of an earlier operation, and most of them begin before they were
//! enqueued.

use std::collections::BTreeMap;

use crate::correlate::{GpuTiming, OpRef};
use crate::event::{GpuOperation, Op};

/// Maximum number of held rows per communicator.
const MAX_HELD: usize = 64;

/// Maximum time for which a row is held, nanoseconds of event time.
const MAX_HELD_NS: u64 = 1_000_000_000;

/// Overlap with the previous operation above which the end of that one is wrong, nanoseconds.
const OVERLAP_NS: u64 = 5_000;

/// Maximum number of wrong rows among the last 64 of a communicator.
const MAX_WRONG_OF_64: u32 = 32;

/// Row of a known communicator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    /// Operation as reported by the plugin.
    pub(super) operation: GpuOperation,
    /// Reference to the operation.
    pub(super) at: OpRef,
    /// Timing; `None` where it cannot be that of the operation.
    pub(super) times: Option<GpuTiming>,
}

/// Released row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Released {
    /// Row.
    pub(super) row: Row,
    /// Set if its end is that of a later operation.
    pub(super) is_overwritten: bool,
    /// Set if rows stand for the calls of its communicator and this one is in order.
    pub(super) is_call: bool,
}

/// Rows of one communicator.
#[derive(Debug, Default)]
pub(super) struct RowOrder {
    held: BTreeMap<u64, Row>,
    /// Number of the first operation that was not released.
    next: Option<u64>,
    /// Number of the last operation of each function, and NCCL's own number of it.
    numbers: BTreeMap<Op, (u64, u64)>,
    is_replayed: bool,
    /// One bit per row of the last 64, set if it begins before it was enqueued.
    early: u64,
    /// One bit per row of the last 64, set if its end is that of a later operation.
    overwritten: u64,
    is_lost: bool,
}

impl RowOrder {
    /// Records whether a timed operation begins before it was enqueued.
    pub(super) fn record_early_start(&mut self, is_early: bool) {
        self.early = self.early << 1 | u64::from(is_early);
        self.is_lost |= self.early.count_ones() > MAX_WRONG_OF_64;
    }

    /// Returns whether the times of the communicator are those of earlier operations from now on,
    /// until it is recreated.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns whether most of the latest times were wrong in either way.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_lost || self.early.count_ones() + self.overwritten.count_ones() > MAX_WRONG_OF_64
    }

    /// Adds the next row and returns the rows that are held no longer.
    pub(super) fn push(&mut self, row: Row) -> Vec<Released> {
        self.record_nccl_seq(&row.operation);
        if self.next.is_some_and(|next| row.at.seq < next) {
            // Later operations were released already.
            return vec![Released {
                row,
                is_overwritten: false,
                is_call: false,
            }];
        }
        self.held.insert(row.at.seq, row);
        let mut released = Vec::new();
        while self.is_next_ready(row.operation.ts_ns) {
            released.extend(self.release());
        }
        released
    }

    /// Returns the rows that were held too long by `now_ns`.
    pub(super) fn release_until(&mut self, now_ns: u64) -> Vec<Released> {
        let mut released = Vec::new();
        while self.is_first_old(now_ns) {
            released.extend(self.release());
        }
        released
    }

    /// Records NCCL's own number of an operation, which does not advance while a graph is replayed.
    pub(super) fn record_nccl_seq(&mut self, operation: &GpuOperation) {
        let Some(number) = operation.nccl_seq else {
            return;
        };
        let before = self.numbers.insert(operation.op, (operation.seq, number));
        let stands_still = |(seq, before)| before == number && seq != operation.seq;
        self.is_replayed |= before.is_some_and(stands_still);
    }

    /// Returns whether rows stand for the calls of the communicator, because a graph replays its
    /// operations.
    pub(super) fn is_replayed(&self) -> bool {
        self.is_replayed
    }

    fn is_next_ready(&self, now_ns: u64) -> bool {
        let mut held = self.held.keys();
        let (Some(first), Some(second)) = (held.next(), held.next()) else {
            return false;
        };
        let is_first_next = self.next.is_none_or(|next| *first == next);
        let is_in_order = is_first_next && first.checked_add(1) == Some(*second);
        is_in_order || self.held.len() > MAX_HELD || self.is_first_old(now_ns)
    }

    fn is_first_old(&self, now_ns: u64) -> bool {
        let first = self.held.first_key_value();
        first.is_some_and(|(_, row)| now_ns.saturating_sub(row.operation.ts_ns) > MAX_HELD_NS)
    }

    fn release(&mut self) -> Option<Released> {
        let (seq, row) = self.held.pop_first()?;
        self.next = seq.checked_add(1);
        let successor = self.held.first_key_value().map(|(_, row)| row);
        let is_overwritten =
            row.times.is_some() && successor.is_some_and(|next| next.starts_before_end_of(&row));
        if row.times.is_some() {
            self.overwritten = self.overwritten << 1 | u64::from(is_overwritten);
        }
        Some(Released {
            row,
            is_overwritten,
            is_call: self.is_replayed,
        })
    }
}

impl Row {
    /// Returns whether it starts before the end of the previous row. A row that begins before it
    /// was enqueued does not count.
    fn starts_before_end_of(&self, before: &Self) -> bool {
        let spans = self.operation.timer.zip(before.operation.timer);
        let overlaps = spans
            .is_some_and(|(own, before)| own.start_ns.saturating_add(OVERLAP_NS) < before.stop_ns);
        overlaps && self.times.is_some()
    }
}

#[cfg(test)]
mod tests;
