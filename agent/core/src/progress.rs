//! How far a process has come on each of its communicators, told in regular intervals.
//!
//! A collective that one rank never enters leaves no block behind on any rank. What remains are these
//! counts: the missing rank's stops one short of its peers'.

use std::collections::BTreeMap;

use fleet_proto::metric;

use crate::correlate::Issued;
use crate::discover::{Comm, CommIndex};
use crate::event::Op;
use crate::signal::{Block, Point, Role, Value, millis};

/// Time between two reports, nanoseconds of the source's clock: below the 5 s that the contract promises, by more
/// than the pause between two looks at the clock.
pub const REPORT_INTERVAL_NS: u64 = 4_000_000_000;

/// Follows one process.
#[derive(Debug, Default)]
pub struct Progress {
    last: BTreeMap<CommIndex, LastOp>,
    first_entry_ns: Option<u64>,
    reported_ns: Option<u64>,
    last_entry_ns: Option<u64>,
    /// Since when each thread is blocked that waits for the GPU.
    waiting_since_ns: BTreeMap<u32, u64>,
    is_stopped: bool,
}

#[derive(Debug, Clone, Copy)]
struct LastOp {
    seq: u64,
    op: Op,
}

impl Progress {
    /// Takes the next collective of the process.
    pub fn record_issued(&mut self, issued: &Issued) {
        self.first_entry_ns.get_or_insert(issued.entry_ns);
        self.last_entry_ns = Some(issued.entry_ns);
        let (seq, op) = (issued.at.seq, issued.at.op);
        self.last.insert(issued.at.comm, LastOp { seq, op });
    }

    /// Entry of the last collective, nanoseconds; none before the first.
    pub fn last_entry_ns(&self) -> Option<u64> {
        self.last_entry_ns
    }

    /// Takes that a thread began to wait for the GPU.
    pub fn begin_wait(&mut self, tid: u32, entry_ns: u64) {
        self.waiting_since_ns.insert(tid, entry_ns);
    }

    /// Takes that a thread has waited for the GPU.
    pub fn end_wait(&mut self, tid: u32) {
        self.waiting_since_ns.remove(&tid);
    }

    /// Takes whether the process is stopped, by a signal or a debugger.
    pub fn set_stopped(&mut self, is_stopped: bool) {
        self.is_stopped = is_stopped;
    }

    /// Forgets a communicator that is gone: nobody waits on it any more.
    pub fn forget_comm(&mut self, comm: CommIndex) {
        self.last.remove(&comm);
    }

    /// Whether a report is due; true at most once each [`BEAT_NS`] and never before the first collective.
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

    /// One point for a communicator, if the process has issued anything on it.
    pub fn point(
        &self,
        index: CommIndex,
        comm: &Comm,
        role: Option<Role>,
        now_ns: u64,
    ) -> Option<Point> {
        let last = self.last.get(&index)?;
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
                waiting_ms: self.waiting_ms(now_ns),
                is_stopped: self.is_stopped,
            },
        })
    }

    /// How long the thread has been blocked that has waited longest.
    fn waiting_ms(&self, now_ns: u64) -> f64 {
        let since_ns = self.waiting_since_ns.values().min();
        since_ns.map_or(0.0, |since_ns| millis(now_ns.saturating_sub(*since_ns)))
    }
}
