//! What the GPU's own times say, on the clock of the host.
//!
//! The two clocks differ by an unknown, slowly drifting amount. No kernel starts before it was enqueued, and none ends after its end
//! was seen: both bound the difference, and the second is the tighter one, because ends are looked for all the time.

use std::collections::BTreeMap;

use crate::correlate::{Observation, OpRef, RanOp, RanTimes};
use crate::discover::{Comm, CommIndex};
use crate::event::{GpuSpan, Ran};
use crate::pipeline::Pipeline;
use crate::pipeline::row_order::{Released, Row, RowOrder};
use crate::vitals::LostOperations;

/// How long a bound is kept before it is taken anew, so that drift does not spoil it, nanoseconds.
const KEEP_NS: u64 = 10_000_000_000;

/// A kernel that starts this much before its enqueue has times of another one, nanoseconds.
const TOLERANCE_NS: i128 = 300_000;

/// Communicators of one process as NCCL names them; one with more is not told apart any further.
const MAX_COMMS: usize = 4096;

impl Pipeline {
    /// Takes an operation that has run on the GPU. What was issued before it was told before.
    pub fn ran(&mut self, ran: &Ran) {
        let mut steps = Vec::new();
        self.queue.release_until(ran.ts_ns, &mut steps);
        for step in steps {
            self.step(step);
        }
        self.gpu.left_out(ran.lost);
        if !ran.op.is_collective() {
            let comm = self.known_comm_of(ran);
            let at = comm.and_then(|comm| self.transfers.ran(comm, ran));
            match at {
                Some(at) => {
                    let ran = self.gpu.ran(ran, at);
                    self.observe(Observation::Ran(ran));
                }
                None => {
                    if let Some(inside_ns) = self.gpu.inside(ran) {
                        self.observe(Observation::Inside { inside_ns });
                    }
                }
            }
            return;
        }
        let Some(comm) = self.comm_of(ran) else {
            self.gpu.lost.unknown_comm += 1;
            return;
        };
        let (seq, op) = (ran.seq, ran.op);
        let released = self.gpu.hold(ran, OpRef { comm, seq, op });
        self.released(released);
    }

    /// Passes on the rows whose next one did not come in time.
    pub(super) fn release_rows(&mut self, now_ns: u64) {
        let released = self.gpu.release_until(now_ns);
        self.released(released);
    }

    fn released(&mut self, rows: Vec<Released>) {
        for released in rows {
            let Row { ran: row, at, .. } = released.row;
            if released.is_call {
                self.replayed(&row, at);
            }
            let ran = self.gpu.checked(&released);
            self.observe(Observation::Ran(ran));
        }
    }

    /// What is missing of the operations on the GPU.
    pub fn lost_operations(&self) -> LostOperations {
        self.gpu.lost
    }
}

/// Follows the GPU of one process.
#[derive(Debug, Default)]
pub(super) struct GpuTimes {
    comms: BTreeMap<(u64, u32), CommIndex>,
    /// Number of the first operation that is of use, of communicators whose earlier ones were not known.
    counted_from: BTreeMap<CommIndex, u64>,
    orders: BTreeMap<(u64, u32), RowOrder>,
    offset: Offset,
    inside_until_ns: u64,
    lost: LostOperations,
}

impl GpuTimes {
    /// Which of the process's communicators NCCL means, if rows on it were seen or NCCL's name for it is ours.
    pub(super) fn find(&mut self, ran: &Ran, comms: &[Comm]) -> Option<CommIndex> {
        if let Some(known) = self.comms.get(&(ran.comm_id, ran.rank)) {
            return Some(*known);
        }
        let by_name = |(_, comm): &(CommIndex, &Comm)| {
            (comm.id.to_bits(), comm.rank) == (ran.comm_id, ran.rank)
        };
        let (index, _) = CommIndex::numbered(comms).find(by_name)?;
        Some(self.keep(ran, index))
    }

    /// Which one NCCL means when all were seen being made: both see that in the same order, so of those with equal rank and size
    /// the n-th there is the n-th here.
    pub(super) fn find_nth(&mut self, ran: &Ran, comms: &[Comm]) -> Option<CommIndex> {
        let is_alike = |(_, comm): &(CommIndex, &Comm)| {
            comm.parent.is_none() && (comm.rank, comm.nranks) == (ran.rank, ran.nranks)
        };
        let mut alike = CommIndex::numbered(comms).filter(is_alike);
        let (index, _) = alike.nth(usize::try_from(ran.nth).ok()?)?;
        Some(self.keep(ran, index))
    }

    /// Remembers which one NCCL means.
    pub(super) fn keep(&mut self, ran: &Ran, index: CommIndex) -> CommIndex {
        if self.comms.len() < MAX_COMMS {
            self.comms.insert((ran.comm_id, ran.rank), index);
        }
        index
    }

    /// Takes that the operations of a communicator are known from some number on.
    pub(super) fn count_from(&mut self, index: CommIndex, next: u64) {
        self.counted_from.insert(index, next);
    }

    /// Whether the host's call of an operation is known.
    pub(super) fn is_counted(&self, index: CommIndex, seq: u64) -> bool {
        let from = self.counted_from.get(&index);
        from.is_none_or(|from| seq >= *from)
    }

    /// Takes how many operations the plugin had left out by then. Threads tell it out of order, and a plugin that was loaded anew counts
    /// from zero: the most stands.
    pub(super) fn left_out(&mut self, so_far: u64) {
        self.lost.plugin = self.lost.plugin.max(so_far);
    }

    /// An operation with its times, as far as they can be its own.
    pub(super) fn ran(&mut self, ran: &Ran, at: OpRef) -> RanOp {
        let times = ran.timer.and_then(|span| self.times(ran, span));
        RanOp { at, times }
    }

    /// Takes a collective that has run; the rows that need not be held any longer.
    pub(super) fn hold(&mut self, ran: &Ran, at: OpRef) -> Vec<Released> {
        let RanOp { times, .. } = self.ran(ran, at);
        let ran = *ran;
        let row = Row { ran, at, times };
        match self.order(&ran) {
            Some(order) => order.push(row),
            None => Vec::new(),
        }
    }

    /// Takes an operation of a communicator that is not known; whether a graph replays its operations.
    pub(super) fn is_replayed(&mut self, ran: &Ran) -> bool {
        self.order(ran).is_some_and(|order| {
            order.follow_number(ran);
            order.is_replayed()
        })
    }

    /// The rows that were held too long by then.
    pub(super) fn release_until(&mut self, now_ns: u64) -> Vec<Released> {
        let orders = self.orders.values_mut();
        orders
            .flat_map(|order| order.release_until(now_ns))
            .collect()
    }

    /// An operation with its times, as far as those after it show that they are its own.
    pub(super) fn checked(&mut self, released: &Released) -> RanOp {
        let Row { ran, at, times } = released.row;
        let is_doubtful = |order: &mut RowOrder| order.is_doubtful();
        let is_lost = released.is_overwritten || self.order(&ran).is_none_or(is_doubtful);
        let is_news = times.is_some() && is_lost;
        self.lost.overwritten += u64::from(is_news);
        RanOp {
            at,
            times: times.filter(|_| !is_lost),
        }
    }

    /// Row order of a communicator; `None` beyond the maximum number of communicators.
    fn order(&mut self, ran: &Ran) -> Option<&mut RowOrder> {
        let key = (ran.comm_id, ran.rank);
        if self.orders.len() >= MAX_COMMS && !self.orders.contains_key(&key) {
            return None;
        }
        Some(self.orders.entry(key).or_default())
    }

    /// How long the GPU was inside a transfer.
    pub(super) fn inside(&mut self, ran: &Ran) -> Option<u64> {
        let span = ran.timer?;
        self.times(ran, span).map(|times| times.alone_ns)
    }

    fn times(&mut self, ran: &Ran, span: GpuSpan) -> Option<RanTimes> {
        let offset_ns = self.offset.take(ran, span);
        let on_host = |gpu_ns: u64| i128::from(gpu_ns) - offset_ns;
        let queue_ns = on_host(span.start_ns) - i128::from(ran.host_ns);
        let is_own = span.start_ns <= span.stop_ns && queue_ns >= -TOLERANCE_NS;
        let is_lost = self.order(ran).is_none_or(|order| {
            order.begins_early(!is_own);
            order.is_lost()
        });
        if is_lost || !is_own {
            let reason = if is_lost {
                &mut self.lost.counter_lost
            } else {
                &mut self.lost.implausible
            };
            *reason += 1;
            return None;
        }
        let from_ns = span.start_ns.max(self.inside_until_ns);
        self.inside_until_ns = self.inside_until_ns.max(span.stop_ns);
        Some(RanTimes {
            queue_ns: u64::try_from(queue_ns).unwrap_or(0),
            inside_ns: span.stop_ns - span.start_ns,
            alone_ns: span.stop_ns.saturating_sub(from_ns),
            end_ns: u64::try_from(on_host(span.stop_ns)).unwrap_or(ran.ts_ns),
        })
    }
}

/// How far the GPU's timer is ahead of the host's clock.
#[derive(Debug, Default)]
struct Offset {
    /// Since when bounds are taken, and the best of now and of before.
    since_ns: Option<u64>,
    now: Option<i128>,
    before: Option<i128>,
}

impl Offset {
    /// Takes what one operation says; the offset.
    fn take(&mut self, ran: &Ran, span: GpuSpan) -> i128 {
        let since_ns = *self.since_ns.get_or_insert(ran.ts_ns);
        if ran.ts_ns.saturating_sub(since_ns) > KEEP_NS {
            self.since_ns = Some(ran.ts_ns);
            self.before = self.now.take();
        }
        let seen = i128::from(span.stop_ns) - i128::from(ran.ts_ns);
        let best = |a: i128, b: Option<i128>| b.map_or(a, |b| a.max(b));
        self.now = Some(best(seen, self.now));
        best(best(seen, self.now), self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Op;
    use crate::signal::CommId;

    /// The GPU's timer is this much ahead.
    const AHEAD: u64 = 1_000_000_000_000;

    fn ran(host_ns: u64, start_ns: u64, stop_ns: u64, seen_after_ns: u64) -> Ran {
        Ran {
            ts_ns: stop_ns + seen_after_ns,
            pid: 1,
            comm_id: 7,
            rank: 0,
            nranks: 2,
            nth: 0,
            op: Op::AllReduce,
            seq: 0,
            count: 1,
            host_ns,
            timer: Some(GpuSpan {
                start_ns: start_ns + AHEAD,
                stop_ns: stop_ns + AHEAD,
            }),
            nccl_seq: None,
            lost: 0,
        }
    }

    fn comm(id: u64, rank: u32) -> Comm {
        Comm {
            id: CommId::new(id),
            rank,
            nranks: 2,
            parent: None,
        }
    }

    #[test]
    fn times_are_told_on_the_clock_of_the_host() {
        let mut times = GpuTimes::default();
        // This end was seen at once, the next one late: the first says how the clocks differ.
        times.inside(&ran(100, 200, 300, 0));
        let next = ran(1_000_000, 3_000_000, 9_000_000, 700_000);
        let span = next.timer.unwrap();
        let next = times.times(&next, span).unwrap();
        assert_eq!(next.queue_ns, 2_000_000);
        assert_eq!((next.inside_ns, next.end_ns), (6_000_000, 9_000_000));
    }

    #[test]
    fn what_runs_at_the_same_time_counts_once() {
        let mut times = GpuTimes::default();
        assert_eq!(times.inside(&ran(0, 100, 300, 0)), Some(200));
        assert_eq!(times.inside(&ran(0, 200, 350, 0)), Some(50));
        assert_eq!(times.inside(&ran(0, 210, 340, 0)), Some(0));
    }

    #[test]
    fn times_of_another_operation_are_left_out_and_counted() {
        let mut times = GpuTimes::default();
        times.inside(&ran(100, 200, 300, 0));
        // It would have started ten milliseconds before it was enqueued.
        assert_eq!(
            times.inside(&ran(20_000_000, 10_000_000, 10_100_000, 20_000_000)),
            None
        );
        assert_eq!(times.lost.implausible, 1);
    }

    #[test]
    fn communicators_are_matched_by_name_else_in_the_order_in_which_they_were_made() {
        let comms = [comm(50, 0), comm(60, 1), comm(70, 0)];
        let mut times = GpuTimes::default();
        let mut found = |comm_id, rank, nth| {
            let asked = Ran {
                comm_id,
                rank,
                nth,
                ..ran(0, 1, 2, 0)
            };
            let found = times.find(&asked, &comms);
            let found = found.or_else(|| times.find_nth(&asked, &comms));
            found.map(CommIndex::position)
        };
        assert_eq!(found(8, 0, 1), Some(2));
        assert_eq!(found(7, 0, 0), Some(0));
        assert_eq!(found(9, 0, 2), None);
        assert_eq!(found(60, 1, 0), Some(1));
    }
}
