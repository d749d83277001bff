//! What the GPU's own times say, on the clock of the host.
//!
//! The two clocks differ by an unknown, slowly drifting amount. No kernel starts before it was enqueued, and none ends after its end
//! was seen: both bound the difference, and the second is the tighter one, because ends are looked for all the time.

use std::collections::BTreeMap;

use crate::correlate::{CompletedOp, GpuTiming, Observation, OpRef};
use crate::discover::{Comm, CommIndex};
use crate::event::{GpuOperation, GpuSpan};
use crate::pipeline::Pipeline;
use crate::pipeline::row_order::{Released, Row, RowOrder};
use crate::vitals::LostOperations;

/// How long a bound is kept before it is taken anew, so that drift does not spoil it, nanoseconds.
const BOUND_LIFETIME_NS: u64 = 10_000_000_000;

/// A kernel that starts this much before its enqueue has times of another one, nanoseconds.
const TOLERANCE_NS: i128 = 300_000;

/// Communicators of one process as NCCL names them; one with more is not told apart any further.
const MAX_COMMS: usize = 4096;

impl Pipeline {
    /// Takes an operation that has run on the GPU. What was issued before it was told before.
    pub fn on_gpu_operation(&mut self, operation: &GpuOperation) {
        let mut steps = Vec::new();
        self.queue.release_until(operation.ts_ns, &mut steps);
        for step in steps {
            self.step(step);
        }
        self.gpu.record_plugin_losses(operation.lost);
        if !operation.op.is_collective() {
            let comm = self.known_comm_of(operation);
            let at = comm.and_then(|comm| self.transfers.match_completed(comm, operation));
            match at {
                Some(at) => {
                    let completed = self.gpu.completed(operation, at);
                    self.observe(Observation::Completed(completed));
                }
                None => {
                    if let Some(exclusive_ns) = self.gpu.exclusive_ns(operation) {
                        self.observe(Observation::TransferTime { exclusive_ns });
                    }
                }
            }
            return;
        }
        let Some(comm) = self.comm_of(operation) else {
            self.gpu.lost.unknown_comm += 1;
            return;
        };
        let (seq, op) = (operation.seq, operation.op);
        let released = self.gpu.push_row(operation, OpRef { comm, seq, op });
        self.released(released);
    }

    /// Passes on the rows whose next one did not come in time.
    pub(super) fn release_rows(&mut self, now_ns: u64) {
        let released = self.gpu.release_until(now_ns);
        self.released(released);
    }

    fn released(&mut self, rows: Vec<Released>) {
        for released in rows {
            let Row { operation, at, .. } = released.row;
            if released.is_call {
                self.record_replayed(&operation, at);
            }
            let completed = self.gpu.verify(&released);
            self.observe(Observation::Completed(completed));
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
    busy_until_ns: u64,
    lost: LostOperations,
}

impl GpuTimes {
    /// Which of the process's communicators NCCL means, if rows on it were seen or NCCL's name for it is ours.
    pub(super) fn find(&mut self, operation: &GpuOperation, comms: &[Comm]) -> Option<CommIndex> {
        if let Some(known) = self.comms.get(&(operation.comm_id, operation.rank)) {
            return Some(*known);
        }
        let by_name = |(_, comm): &(CommIndex, &Comm)| {
            (comm.id.to_bits(), comm.rank) == (operation.comm_id, operation.rank)
        };
        let (index, _) = CommIndex::enumerate(comms).find(by_name)?;
        Some(self.remember(operation, index))
    }

    /// Which one NCCL means when all were seen being made: both see that in the same order, so of those with equal rank and size
    /// the n-th there is the n-th here.
    pub(super) fn find_nth(
        &mut self,
        operation: &GpuOperation,
        comms: &[Comm],
    ) -> Option<CommIndex> {
        let is_alike = |(_, comm): &(CommIndex, &Comm)| {
            comm.parent.is_none() && (comm.rank, comm.nranks) == (operation.rank, operation.nranks)
        };
        let mut alike = CommIndex::enumerate(comms).filter(is_alike);
        let (index, _) = alike.nth(usize::try_from(operation.nth).ok()?)?;
        Some(self.remember(operation, index))
    }

    /// Remembers which one NCCL means.
    pub(super) fn remember(&mut self, operation: &GpuOperation, index: CommIndex) -> CommIndex {
        if self.comms.len() < MAX_COMMS {
            self.comms
                .insert((operation.comm_id, operation.rank), index);
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
    pub(super) fn record_plugin_losses(&mut self, so_far: u64) {
        self.lost.plugin = self.lost.plugin.max(so_far);
    }

    /// An operation with its times, as far as they can be its own.
    pub(super) fn completed(&mut self, operation: &GpuOperation, at: OpRef) -> CompletedOp {
        let times = operation.timer.and_then(|span| self.times(operation, span));
        CompletedOp { at, times }
    }

    /// Takes a collective that has run; the rows that need not be held any longer.
    pub(super) fn push_row(&mut self, operation: &GpuOperation, at: OpRef) -> Vec<Released> {
        let CompletedOp { times, .. } = self.completed(operation, at);
        let operation = *operation;
        let row = Row {
            operation,
            at,
            times,
        };
        match self.order(&operation) {
            Some(order) => order.push(row),
            None => Vec::new(),
        }
    }

    /// Takes an operation of a communicator that is not known; whether a graph replays its operations.
    pub(super) fn is_replayed(&mut self, operation: &GpuOperation) -> bool {
        self.order(operation).is_some_and(|order| {
            order.record_nccl_seq(operation);
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
    pub(super) fn verify(&mut self, released: &Released) -> CompletedOp {
        let Row {
            operation,
            at,
            times,
        } = released.row;
        let is_doubtful = |order: &mut RowOrder| order.is_doubtful();
        let is_lost = released.is_overwritten || self.order(&operation).is_none_or(is_doubtful);
        let is_newly_lost = times.is_some() && is_lost;
        self.lost.overwritten += u64::from(is_newly_lost);
        CompletedOp {
            at,
            times: times.filter(|_| !is_lost),
        }
    }

    /// Row order of a communicator; `None` beyond the maximum number of communicators.
    fn order(&mut self, operation: &GpuOperation) -> Option<&mut RowOrder> {
        let key = (operation.comm_id, operation.rank);
        if self.orders.len() >= MAX_COMMS && !self.orders.contains_key(&key) {
            return None;
        }
        Some(self.orders.entry(key).or_default())
    }

    /// How long the GPU was inside a transfer.
    pub(super) fn exclusive_ns(&mut self, operation: &GpuOperation) -> Option<u64> {
        let span = operation.timer?;
        self.times(operation, span).map(|times| times.exclusive_ns)
    }

    fn times(&mut self, operation: &GpuOperation, span: GpuSpan) -> Option<GpuTiming> {
        let offset_ns = self.offset.update(operation, span);
        let on_host = |gpu_ns: u64| i128::from(gpu_ns) - offset_ns;
        let queue_ns = on_host(span.start_ns) - i128::from(operation.host_ns);
        let is_own = span.start_ns <= span.stop_ns && queue_ns >= -TOLERANCE_NS;
        let is_lost = self.order(operation).is_none_or(|order| {
            order.record_early_start(!is_own);
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
        let from_ns = span.start_ns.max(self.busy_until_ns);
        self.busy_until_ns = self.busy_until_ns.max(span.stop_ns);
        Some(GpuTiming {
            queue_ns: u64::try_from(queue_ns).unwrap_or(0),
            kernel_ns: span.stop_ns - span.start_ns,
            exclusive_ns: span.stop_ns.saturating_sub(from_ns),
            end_ns: u64::try_from(on_host(span.stop_ns)).unwrap_or(operation.ts_ns),
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
    fn update(&mut self, operation: &GpuOperation, span: GpuSpan) -> i128 {
        let since_ns = *self.since_ns.get_or_insert(operation.ts_ns);
        if operation.ts_ns.saturating_sub(since_ns) > BOUND_LIFETIME_NS {
            self.since_ns = Some(operation.ts_ns);
            self.before = self.now.take();
        }
        let seen = i128::from(span.stop_ns) - i128::from(operation.ts_ns);
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

    fn gpu_operation(
        host_ns: u64,
        start_ns: u64,
        stop_ns: u64,
        seen_after_ns: u64,
    ) -> GpuOperation {
        GpuOperation {
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
        times.exclusive_ns(&gpu_operation(100, 200, 300, 0));
        let next = gpu_operation(1_000_000, 3_000_000, 9_000_000, 700_000);
        let span = next.timer.unwrap();
        let next = times.times(&next, span).unwrap();
        assert_eq!(next.queue_ns, 2_000_000);
        assert_eq!((next.kernel_ns, next.end_ns), (6_000_000, 9_000_000));
    }

    #[test]
    fn what_runs_at_the_same_time_counts_once() {
        let mut times = GpuTimes::default();
        assert_eq!(
            times.exclusive_ns(&gpu_operation(0, 100, 300, 0)),
            Some(200)
        );
        assert_eq!(times.exclusive_ns(&gpu_operation(0, 200, 350, 0)), Some(50));
        assert_eq!(times.exclusive_ns(&gpu_operation(0, 210, 340, 0)), Some(0));
    }

    #[test]
    fn times_of_another_operation_are_left_out_and_counted() {
        let mut times = GpuTimes::default();
        times.exclusive_ns(&gpu_operation(100, 200, 300, 0));
        // It would have started ten milliseconds before it was enqueued.
        assert_eq!(
            times.exclusive_ns(&gpu_operation(
                20_000_000, 10_000_000, 10_100_000, 20_000_000
            )),
            None
        );
        assert_eq!(times.lost.implausible, 1);
    }

    #[test]
    fn communicators_are_matched_by_name_else_in_the_order_in_which_they_were_made() {
        let comms = [comm(50, 0), comm(60, 1), comm(70, 0)];
        let mut times = GpuTimes::default();
        let mut found = |comm_id, rank, nth| {
            let wanted = GpuOperation {
                comm_id,
                rank,
                nth,
                ..gpu_operation(0, 1, 2, 0)
            };
            let found = times.find(&wanted, &comms);
            let found = found.or_else(|| times.find_nth(&wanted, &comms));
            found.map(CommIndex::position)
        };
        assert_eq!(found(8, 0, 1), Some(2));
        assert_eq!(found(7, 0, 0), Some(0));
        assert_eq!(found(9, 0, 2), None);
        assert_eq!(found(60, 1, 0), Some(1));
    }
}
