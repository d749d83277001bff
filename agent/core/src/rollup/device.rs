//! Device part of the rollup. A block ends with the first call of the next one, but its operations
//! may run long after that, so it waits for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fleet_proto::metric;

use crate::correlate::{CompletedOp, Completion};
use crate::discover::CommIndex;
use crate::exemplar::is_sampled;
use crate::rollup::block::{OpenBlock, TimedCount};
use crate::rollup::{Rollup, View};
use crate::signal::{Block, Point, Source, Summary, Value, millis};

/// Maximum number of blocks per communicator that wait for their operations; the oldest is closed
/// as it is beyond that.
const MAX_RUNNING: usize = 8;

/// Blocks whose calls were all issued and whose operations have not all run.
#[derive(Debug, Default)]
pub(super) struct RunningBlocks {
    blocks: BTreeMap<CommIndex, VecDeque<OpenBlock>>,
    /// Communicators whose operations are reported by GPUs.
    reporting: BTreeSet<CommIndex>,
    /// Last completed operation of each communicator. Rows arrive in the order of operations
    /// (`pipeline::row_order`).
    reached: BTreeMap<CommIndex, u64>,
    /// Last completed operation of the busiest communicator.
    last: Option<Completion>,
    /// Time that the GPU spent in operations of this iteration so far, nanoseconds.
    kernel_ns: u64,
    /// Operations of this iteration so far.
    timed: TimedCount,
}

impl RunningBlocks {
    /// Returns the waiting blocks of a communicator.
    pub(super) fn blocks_of(&mut self, comm: CommIndex) -> impl Iterator<Item = &mut OpenBlock> {
        self.blocks.get_mut(&comm).into_iter().flatten()
    }

    /// Resets the last completed operation of a communicator to before `from_seq`: later numbers
    /// are reassigned.
    pub(super) fn on_renumber(&mut self, comm: CommIndex, from_seq: u64) {
        if let Some(reached) = self.reached.get_mut(&comm) {
            *reached = from_seq.saturating_sub(1).min(*reached);
        }
    }
}

impl Rollup {
    /// Processes a completed operation.
    pub(super) fn on_completed(&mut self, completed: &CompletedOp, view: View<'_>) {
        let at = completed.at;
        self.running.reporting.insert(at.comm);
        let reached = self.running.reached.entry(at.comm).or_default();
        *reached = at.seq.max(*reached);
        let comm = view.comms.get(at.comm.position());
        let sampled = comm.is_some_and(|comm| is_sampled(comm.id, at.seq, view.sample_mod));
        let exclusive_ns = completed.times.map_or(0, |times| times.exclusive_ns);
        let is_of_primary = at.comm == self.primary;
        let completion = self.completion(completed, view).filter(|_| is_of_primary);
        // One sample per iteration, or per operation where no iteration is known.
        if is_of_primary && view.iteration_pattern.begins_at(at.seq) {
            self.end_iteration(at.seq.checked_sub(1));
        }
        self.add_kernel_time(exclusive_ns);
        self.running.timed.record(completed);
        if is_of_primary && view.iteration_pattern.pattern().is_none() && completed.times.is_some()
        {
            self.end_iteration(Some(at.seq));
        }
        if let Some(open) = self.find_block(at.comm, at.seq) {
            open.add_completed(completed, sampled);
            open.device.completion = completion.max(open.device.completion);
        }
        self.close_finished(at.comm, view);
    }

    /// Returns the completion that an operation shows: the iteration before it, if it begins one;
    /// itself where iterations are not known.
    fn completion(&mut self, completed: &CompletedOp, view: View<'_>) -> Option<Completion> {
        let own = completed.completion();
        if view.iteration_pattern.pattern().is_none() || completed.at.comm != self.primary {
            return own;
        }
        let before = std::mem::replace(&mut self.running.last, own);
        let is_before = |last: &Completion| last.seq + 1 == completed.at.seq;
        before.filter(|last| is_before(last) && view.iteration_pattern.begins_at(completed.at.seq))
    }

    /// Records the time that the GPU spent in operations of the iteration that ended with operation
    /// `last`.
    fn end_iteration(&mut self, last: Option<u64>) {
        let kernel_ns = std::mem::take(&mut self.running.kernel_ns);
        let timed = std::mem::take(&mut self.running.timed);
        if let Some(open) = last.and_then(|last| self.find_block(self.primary, last)) {
            open.device.blocked.add(millis(kernel_ns));
            open.device.timed.add(timed);
        }
    }

    /// Adds time that the GPU spent in an operation or a transfer.
    pub(super) fn add_kernel_time(&mut self, kernel_ns: u64) {
        self.running.kernel_ns = self.running.kernel_ns.saturating_add(kernel_ns);
    }

    /// Retires a block whose calls were all issued.
    pub(super) fn retire(&mut self, index: CommIndex, open: OpenBlock, view: View<'_>) {
        if !self.running.reporting.contains(&index) {
            self.close(index, open, view);
            return;
        }
        self.running
            .blocks
            .entry(index)
            .or_default()
            .push_back(open);
        self.close_finished(index, view);
    }

    /// Closes all waiting blocks as they are.
    pub(super) fn close_running(&mut self, view: View<'_>) {
        for (index, blocks) in std::mem::take(&mut self.running.blocks) {
            for open in blocks {
                self.close(index, open, view);
            }
        }
    }

    /// Prefers the completion measured by the GPU, which knows it for each operation.
    pub(super) fn settle(open: &mut OpenBlock) {
        open.totals.completion = open.device.completion.or(open.totals.completion);
    }

    /// Pushes the device points of a block.
    pub(super) fn close_device_part(
        &mut self,
        block: &Block,
        index: CommIndex,
        open: &mut OpenBlock,
    ) {
        let part = std::mem::take(&mut open.device);
        // A rank that lacks times must not look like one that waits less.
        let counts = TimedCount {
            reported: part.reported,
            untimed: part.reported.saturating_sub(part.queue.count),
        };
        if !counts.is_comparable() {
            return;
        }
        let (start_ns, time_ns) = (open.first_entry_ns, part.end_ns.max(open.first_entry_ns));
        let block = Block {
            source: Source::Device,
            ..block.clone()
        };
        let mut push = |metric, block: &Block, value| {
            self.points.push(Point {
                metric,
                start_ns,
                time_ns,
                block: block.clone(),
                value,
            });
        };
        for (op, wait) in part.waits {
            let value = wait.into_value();
            let block = Block {
                op,
                ..block.clone()
            };
            push(metric::WAIT, &block, value);
        }
        let of_whole: [(_, Summary); 2] =
            [(metric::QUEUE, part.queue), (metric::BLOCKED, part.blocked)];
        for (metric, summary) in of_whole {
            let is_whole = metric != metric::BLOCKED || part.timed.is_comparable();
            if index == self.primary && is_whole && part.reported > 0 && summary.count > 0 {
                push(metric, &block, Value::from(summary));
            }
        }
    }

    /// Returns the block of an operation, open or waiting.
    fn find_block(&mut self, index: CommIndex, seq: u64) -> Option<&mut OpenBlock> {
        let mut all = self
            .running
            .blocks_of(index)
            .chain(self.open.get_mut(&index));
        all.find(|open| open.contains(seq))
    }

    /// Closes the blocks that have run, including those with unreported operations when later
    /// operations have run.
    fn close_finished(&mut self, index: CommIndex, view: View<'_>) {
        let reached = self.running.reached.get(&index).copied();
        // The end of an iteration shows in the first operation of the next one.
        let awaits_next = index == self.primary && view.iteration_pattern.pattern().is_some();
        while let Some(blocks) = self.running.blocks.get_mut(&index) {
            let has_run =
                |open: &OpenBlock| reached > Some(open.seq_last) || !awaits_next && open.has_run();
            let is_due = blocks.front().is_some_and(has_run) || blocks.len() > MAX_RUNNING;
            let Some(open) = blocks.pop_front_if(|_| is_due) else {
                return;
            };
            let is_silent = open.device.reported == 0 && reached <= Some(open.seq_last);
            self.close(index, open, view);
            if is_silent {
                // The plugin was disabled, and nothing more is awaited.
                self.running.reporting.remove(&index);
                let rest = self.running.blocks.remove(&index);
                for open in rest.into_iter().flatten() {
                    self.close(index, open, view);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
