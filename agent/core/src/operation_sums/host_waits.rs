//! Time for which a process was blocked in synchronisations with its GPU, summed over blocks of the
//! operations that it waited for.
//!
//! Where GPUs are not timed, these waits tell the same as durations do: ranks that wait for the same
//! operation return at once, so the last to enqueue it waits for the shortest time. A synchronisation
//! counts for the last operation enqueued before it, unless an earlier one has covered that. So a
//! block without any is a block without waiting, and a GPU that is late is not seen: its host waits
//! as long as the others.
//!
//! Hosts that never wait are compared by when they enqueue: the block has the sum of the times from
//! the enqueues to its end.
//!
//! Hosts enqueue the operations of a step at once and learn of their end together. They count as if
//! they had ended one after another, evenly between two synchronisations: blocks would otherwise end
//! with the bursts, and the pace would vary by a whole step.

use std::collections::{HashSet, VecDeque};

use super::channel::{Channel, Ended, OpenBlocks};
use crate::correlate::{Issued, OpRef, Waited};
use crate::discover::Comm;
use crate::event::Op;
use crate::signal::{Point, Source, millis};

/// Time after which an operation counts as ended without a synchronisation, nanoseconds: that of a
/// late host is too short to be seen.
const UNCOVERED_NS: u64 = 1_000_000_000;

/// Largest number of operations that wait for a synchronisation.
const MAX_PENDING: usize = 16_384;

/// Waits of one process.
#[derive(Debug)]
pub struct HostWaits {
    blocks: OpenBlocks,
    /// Operations that are not known to have ended, oldest first.
    pending: VecDeque<PendingOp>,
    /// Instant up to which all operations have ended.
    ended_ns: Option<u64>,
    /// Threads that are in a synchronisation.
    waiting: HashSet<u32>,
    is_disabled: bool,
}

#[derive(Debug, Clone, Copy)]
struct PendingOp {
    channel: Channel,
    seq: u64,
    op: Op,
    entry_ns: u64,
}

impl Default for HostWaits {
    fn default() -> Self {
        Self {
            blocks: OpenBlocks::new(Source::Host),
            pending: VecDeque::new(),
            ended_ns: None,
            waiting: HashSet::new(),
            is_disabled: false,
        }
    }
}

impl HostWaits {
    /// Stops the sums of a process whose GPU is timed.
    pub fn disable(&mut self) {
        self.is_disabled = true;
        self.on_loss();
    }

    /// Adds an operation that was enqueued.
    pub fn record_issued(&mut self, issued: &Issued, comm: &Comm) {
        if self.is_disabled {
            return;
        }
        self.release_uncovered(issued.entry_ns);
        self.pending.push_back(PendingOp {
            channel: channel(issued.at, comm),
            seq: issued.at.seq,
            op: issued.at.op,
            entry_ns: issued.entry_ns,
        });
    }

    /// Notes that a thread waits. The operations before it have ended when it returns.
    pub fn begin_wait(&mut self, tid: u32) {
        self.waiting.insert(tid);
    }

    /// Adds a wait for an operation of a communicator. One that ends after its block was reported
    /// counts in the next one rather than nowhere.
    pub fn record_wait(&mut self, waited: &Waited, comm: Option<&Comm>) {
        self.waiting.remove(&waited.tid);
        let Some((at, comm)) = waited.covers.zip(comm) else {
            return;
        };
        self.release_covered(waited);
        let channel = channel(at, comm);
        if let Some(open) = self.blocks.find(channel, at.seq) {
            let wait_ms = millis(waited.return_ns.saturating_sub(waited.entry_ns));
            open.times.durations.sum_ms += wait_ms;
            open.times.durations.max_ms = open.times.durations.max_ms.max(wait_ms);
        }
        self.blocks.take_all_complete();
    }

    /// Drops the open blocks: events that belong to them may be lost.
    pub fn on_loss(&mut self) {
        self.blocks.clear();
        self.pending.clear();
        self.waiting.clear();
        self.ended_ns = None;
    }

    /// Reports the blocks to which nothing was added for a while at `now_ns`.
    pub fn tick(&mut self, now_ns: u64) {
        if self.waiting.is_empty() {
            self.release_uncovered(now_ns);
            if self.pending.is_empty() {
                self.blocks.tick(now_ns);
            }
        }
    }

    /// Reports all blocks as they are.
    pub fn finish(&mut self) {
        self.release_while(|_| true);
        self.blocks.finish();
    }

    /// Returns the points since the last call.
    pub fn take_points(&mut self) -> Vec<Point> {
        self.blocks.take_points()
    }

    /// Ends the operations before a synchronisation, evenly since the last one.
    fn release_covered(&mut self, waited: &Waited) {
        let covered = |pending: &&PendingOp| pending.entry_ns <= waited.entry_ns;
        let n = self.pending.iter().take_while(covered).count() as u64;
        let first_ns = self.pending.front().map(|pending| pending.entry_ns);
        let Some(from_ns) = self.ended_ns.or(first_ns) else {
            return;
        };
        let span_ns = waited.return_ns.saturating_sub(from_ns);
        for nth in 1..=n {
            let share = u128::from(span_ns) * u128::from(nth) / u128::from(n);
            let after_ns = u64::try_from(share).unwrap_or(span_ns);
            if let Some(pending) = self.pending.pop_front() {
                self.end(pending, from_ns.saturating_add(after_ns));
            }
        }
    }

    /// Ends the operations that no synchronisation has covered in time at `now_ns`.
    fn release_uncovered(&mut self, now_ns: u64) {
        let is_full = self.pending.len() >= MAX_PENDING;
        if self.waiting.is_empty() || is_full {
            let due = |pending: &mut PendingOp| {
                is_full || now_ns.saturating_sub(pending.entry_ns) > UNCOVERED_NS
            };
            self.release_while(due);
        }
    }

    fn release_while(&mut self, is_due: impl Fn(&mut PendingOp) -> bool) {
        let mut has_ended = false;
        while let Some(pending) = self.pending.pop_front_if(&is_due) {
            self.end(pending, pending.entry_ns);
            has_ended = true;
        }
        if has_ended {
            self.blocks.take_all_complete();
        }
    }

    fn end(&mut self, pending: PendingOp, at_ns: u64) {
        let ts_ns = self.ended_ns.map_or(at_ns, |ended_ns| ended_ns.max(at_ns));
        self.ended_ns = Some(ts_ns);
        let ended = Ended {
            seq: pending.seq,
            op: pending.op,
            ts_ns,
        };
        if let Some(open) = self.blocks.record(pending.channel, ended) {
            open.times.durations.count += 1;
            open.times.add_lead(open.until_first_ms(pending.entry_ns));
        }
    }
}

fn channel(at: OpRef, comm: &Comm) -> Channel {
    Channel {
        comm_id: comm.id.to_bits(),
        rank: comm.rank,
        size: comm.nranks,
        is_transfer: !at.op.is_collective(),
    }
}

#[cfg(test)]
mod tests;
