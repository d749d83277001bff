//! Conversion of GPU times to the clock of the host.
//!
//! No kernel starts before it was enqueued, and none ends after its end was observed. The second
//! bound gives the offset of the clocks (`gpu_clock`), and the first shows times that belong to
//! another operation. Durations need no offset.

use std::collections::BTreeMap;

use crate::correlate::{CompletedOp, GpuTiming, Observation, OpRef};
use crate::discover::{Comm, CommIndex};
use crate::event::{GpuOperation, GpuSpan};
use crate::pipeline::Pipeline;
use crate::pipeline::gpu_clock::GpuClock;
use crate::pipeline::row_order::{Released, Row, RowOrder};
use crate::vitals::LostOperations;

/// Lead over the enqueue above which times belong to another kernel, nanoseconds.
const TOLERANCE_NS: i128 = 300_000;

/// Maximum number of NCCL communicators tracked per process.
const MAX_COMMS: usize = 4096;

impl Pipeline {
    /// Processes an operation that has run on the GPU. Everything issued before it must have been
    /// processed.
    pub fn on_gpu_operation(&mut self, operation: &GpuOperation) {
        let mut steps = Vec::new();
        self.queue.release_until(operation.ts_ns, &mut steps);
        for step in steps {
            self.step(step);
        }
        self.progress.record_change(operation.ts_ns);
        self.operation_sums.record(operation);
        self.host_waits.disable();
        self.gpu.record_plugin_losses(operation.lost);
        if !operation.op.is_collective() {
            let comm = self.known_comm_of(operation);
            if comm.is_none() {
                self.on_unnumbered(operation);
            }
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

    /// Passes on the rows whose successor did not arrive in time.
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

    /// Returns the losses of operations on the GPU.
    pub fn lost_operations(&self) -> LostOperations {
        LostOperations {
            not_summed: self.operation_sums.left_out(),
            ..self.gpu.lost
        }
    }
}

/// Operations of one process on its GPU.
#[derive(Debug, Default)]
pub(super) struct GpuTimes {
    comms: BTreeMap<(u64, u32), CommIndex>,
    /// Number of the first usable operation, for communicators whose earlier operations are
    /// unknown.
    counted_from: BTreeMap<CommIndex, u64>,
    orders: BTreeMap<(u64, u32), RowOrder>,
    clock: GpuClock,
    busy_until_ns: u64,
    lost: LostOperations,
}

impl GpuTimes {
    /// Returns the process's communicator of an operation, if rows on it were seen or its hash is
    /// known.
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

    /// Returns the communicator when the creation of all was seen: plugin and agent see it in the
    /// same order, so among those with equal rank and size the n-th is the same.
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

    /// Remembers the communicator of an operation's hash.
    pub(super) fn remember(&mut self, operation: &GpuOperation, index: CommIndex) -> CommIndex {
        if self.comms.len() < MAX_COMMS {
            self.comms
                .insert((operation.comm_id, operation.rank), index);
        }
        index
    }

    /// Sets the number from which on the operations of a communicator are known.
    pub(super) fn count_from(&mut self, index: CommIndex, next: u64) {
        self.counted_from.insert(index, next);
    }

    /// Returns whether the host's call of an operation is known.
    pub(super) fn is_counted(&self, index: CommIndex, seq: u64) -> bool {
        let from = self.counted_from.get(&index);
        from.is_none_or(|from| seq >= *from)
    }

    /// Records the number of operations that the plugin had dropped by then. Threads report it out
    /// of order, and a reloaded plugin starts from zero, so the maximum counts.
    pub(super) fn record_plugin_losses(&mut self, so_far: u64) {
        self.lost.plugin = self.lost.plugin.max(so_far);
    }

    /// Returns an operation with its timing, where that can be its own.
    pub(super) fn completed(&mut self, operation: &GpuOperation, at: OpRef) -> CompletedOp {
        let times = operation.timer.and_then(|span| self.times(operation, span));
        CompletedOp { at, times }
    }

    /// Adds a completed collective and returns the rows that need not be held any longer.
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

    /// Records an operation of an unknown communicator and returns whether a graph replays its
    /// operations.
    pub(super) fn is_replayed(&mut self, operation: &GpuOperation) -> bool {
        self.order(operation).is_some_and(|order| {
            order.record_nccl_seq(operation);
            order.is_replayed()
        })
    }

    /// Returns the rows that were held too long by `now_ns`.
    pub(super) fn release_until(&mut self, now_ns: u64) -> Vec<Released> {
        let orders = self.orders.values_mut();
        orders
            .flat_map(|order| order.release_until(now_ns))
            .collect()
    }

    /// Returns an operation with its timing, unless later rows show that it is not its own.
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

    /// Returns the row order of a communicator; `None` beyond the maximum number of communicators.
    fn order(&mut self, operation: &GpuOperation) -> Option<&mut RowOrder> {
        let key = (operation.comm_id, operation.rank);
        if self.orders.len() >= MAX_COMMS && !self.orders.contains_key(&key) {
            return None;
        }
        Some(self.orders.entry(key).or_default())
    }

    /// Returns the time that only this transfer spent on the GPU.
    pub(super) fn exclusive_ns(&mut self, operation: &GpuOperation) -> Option<u64> {
        let span = operation.timer?;
        self.times(operation, span).map(|times| times.exclusive_ns)
    }

    fn times(&mut self, operation: &GpuOperation, span: GpuSpan) -> Option<GpuTiming> {
        let offset_ns = self.clock.observe(operation.ts_ns, span.stop_ns);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Op;
    use crate::signal::CommId;

    /// Lead of the GPU's timer.
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
            root: None,
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
    fn times_are_reported_on_the_clock_of_the_host() {
        let mut times = GpuTimes::default();
        // This end was observed immediately, the next one late: the first determines the offset.
        times.exclusive_ns(&gpu_operation(100, 200, 300, 0));
        let next = gpu_operation(1_000_000, 3_000_000, 9_000_000, 700_000);
        let span = next.timer.unwrap();
        let next = times.times(&next, span).unwrap();
        assert_eq!(next.queue_ns, 2_000_000);
        assert_eq!((next.kernel_ns, next.end_ns), (6_000_000, 9_000_000));
    }

    #[test]
    fn concurrent_operations_are_counted_once() {
        let mut times = GpuTimes::default();
        assert_eq!(
            times.exclusive_ns(&gpu_operation(0, 100, 300, 0)),
            Some(200)
        );
        assert_eq!(times.exclusive_ns(&gpu_operation(0, 200, 350, 0)), Some(50));
        assert_eq!(times.exclusive_ns(&gpu_operation(0, 210, 340, 0)), Some(0));
    }

    #[test]
    fn times_of_another_operation_are_dropped_and_counted() {
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
    fn communicators_are_matched_by_hash_else_in_order_of_creation() {
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
