//! Progress of a process on each of its communicators, reported at regular intervals.
//!
//! A collective that one rank never enters produces no block on any rank. Only these counts show
//! it: the count of the missing rank stops one short of those of its peers.

use std::collections::BTreeMap;

use fleet_proto::metric;

use crate::correlate::Issued;
use crate::discover::{Comm, CommIndex};
use crate::event::{Exit, Op};
use crate::signal::{Block, Point, Role, Value, millis};

/// Interval between reports, nanoseconds of the source's clock: below the 5 s of the contract by
/// more than the pause between two clock checks.
pub const REPORT_INTERVAL_NS: u64 = 4_000_000_000;

/// Progress of one process.
#[derive(Debug, Default)]
pub struct Progress {
    last: BTreeMap<CommIndex, LastOp>,
    first_entry_ns: Option<u64>,
    reported_ns: Option<u64>,
    last_entry_ns: Option<u64>,
    /// Start of the current wait for the GPU, by thread.
    waiting_since_ns: BTreeMap<u32, u64>,
    is_stopped: bool,
    /// Operations that the GPU has begun and not ended, read while nothing happens; `None` where that is unknown.
    running: Option<u64>,
    /// Latest time at which the process issued an operation, or its GPU was seen to end one.
    changed_ns: u64,
    exit: Option<Exit>,
    /// Last operations on communicators that were destroyed.
    destroyed: BTreeMap<CommIndex, LastOp>,
}

#[derive(Debug, Clone, Copy)]
struct LastOp {
    seq: u64,
    op: Op,
    entry_ns: u64,
}

impl Progress {
    /// Records the next collective of the process.
    pub fn record_issued(&mut self, issued: &Issued) {
        self.first_entry_ns.get_or_insert(issued.entry_ns);
        self.last_entry_ns = Some(issued.entry_ns);
        self.record_change(issued.entry_ns);
        let last = LastOp {
            seq: issued.at.seq,
            op: issued.at.op,
            entry_ns: issued.entry_ns,
        };
        self.last.insert(issued.at.comm, last);
    }

    /// Returns the entry of the last collective, nanoseconds; `None` before the first.
    pub fn last_entry_ns(&self) -> Option<u64> {
        self.last_entry_ns
    }

    /// Records that a thread began to wait for the GPU.
    pub fn begin_wait(&mut self, tid: u32, entry_ns: u64) {
        self.waiting_since_ns.insert(tid, entry_ns);
    }

    /// Records that a thread finished waiting for the GPU.
    pub fn end_wait(&mut self, tid: u32) {
        self.waiting_since_ns.remove(&tid);
    }

    /// Sets whether the process is stopped by a signal or a debugger.
    pub fn set_stopped(&mut self, is_stopped: bool) {
        self.is_stopped = is_stopped;
    }

    /// Records that the process issued an operation, or that its GPU was seen to end one.
    pub fn record_change(&mut self, at_ns: u64) {
        self.changed_ns = self.changed_ns.max(at_ns);
        self.running = None;
    }

    /// Sets how many operations the GPU has begun and not ended; `None` if that is unknown. `read_ns` is the time of
    /// the first of the readings that agree, nanoseconds: a count from before the last change is dropped.
    pub fn set_running(&mut self, running: Option<u64>, read_ns: u64) {
        self.running = running.filter(|_| read_ns > self.changed_ns);
    }

    /// Sets how the process ended; `None` if that was not seen.
    pub fn set_exit(&mut self, exit: Option<Exit>) {
        self.exit = exit;
    }

    /// Returns the time of the last report: the end of the process if it was seen, else the entry of the
    /// last collective, nanoseconds; `None` before the first.
    pub fn end_ns(&self) -> Option<u64> {
        let exit_ns = self.exit.map(|exit| exit.ts_ns);
        self.last_entry_ns.map(|last_ns| exit_ns.unwrap_or(last_ns))
    }

    /// Removes a communicator that was destroyed.
    pub fn forget_comm(&mut self, comm: CommIndex) {
        self.destroyed.extend(self.last.remove_entry(&comm));
    }

    /// Returns the last operation on a communicator. Programs that fail abort theirs before they end, so
    /// the end is reported with those as well.
    fn last_op(&self, comm: CommIndex) -> Option<&LastOp> {
        let destroyed = self.exit.and_then(|_| self.destroyed.get(&comm));
        self.last.get(&comm).or(destroyed)
    }

    /// Returns whether a report is due: at most once per [`REPORT_INTERVAL_NS`] and never before
    /// the first collective.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        let pause_ns = |reported_ns: u64| now_ns.saturating_sub(reported_ns);
        let is_due = !self.last.is_empty()
            && self
                .reported_ns
                .is_none_or(|reported_ns| pause_ns(reported_ns) >= REPORT_INTERVAL_NS);
        if is_due {
            self.reported_ns = Some(now_ns);
        }
        is_due
    }

    /// Returns a point for a communicator if the process has issued anything on it.
    pub fn point(
        &self,
        index: CommIndex,
        comm: &Comm,
        role: Option<Role>,
        now_ns: u64,
    ) -> Option<Point> {
        let last = self.last_op(index)?;
        let start_ns = self.first_entry_ns?;
        Some(Point {
            metric: metric::ISSUED,
            start_ns,
            time_ns: now_ns.max(start_ns),
            block: Block {
                comm: comm.id,
                comm_rank: comm.rank,
                comm_nranks: comm.nranks,
                source: crate::signal::Source::Host,
                op: last.op,
                seq_first: last.seq,
                seq_last: last.seq,
                iterations: None,
                role,
            },
            value: Value::Issued {
                total: last.seq + 1,
                age_ms: Some(millis(now_ns.saturating_sub(last.entry_ns))),
                waiting_ms: self.waiting_ms(now_ns),
                is_stopped: self.is_stopped,
                running: self.running,
                exit: self.exit.map(|exit| exit.status),
            },
        })
    }

    /// Returns the longest current wait of any thread, milliseconds.
    fn waiting_ms(&self, now_ns: u64) -> f64 {
        let since_ns = self.waiting_since_ns.values().min();
        since_ns.map_or(0.0, |since_ns| millis(now_ns.saturating_sub(*since_ns)))
    }
}
