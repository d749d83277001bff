//! What GPUs tell of blocks. A block ends with the next one's first call, but its operations may run long after that, so it waits for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fleet_proto::metric;

use crate::correlate::{CompletedOp, Completion};
use crate::discover::CommIndex;
use crate::exemplar::is_sampled;
use crate::rollup::block::{OpenBlock, TimedCount};
use crate::rollup::{Rollup, View};
use crate::signal::{Block, Point, Source, Summary, Value, millis};

/// Blocks of a communicator that wait for their operations to run; beyond that the oldest is told as it is.
const MAX_RUNNING: usize = 8;

/// Blocks whose calls were all issued, and whose operations have not all run.
#[derive(Debug, Default)]
pub(super) struct RunningBlocks {
    blocks: BTreeMap<CommIndex, VecDeque<OpenBlock>>,
    /// Communicators whose operations GPUs tell of.
    reporting: BTreeSet<CommIndex>,
    /// The last operation of each communicator that has run. Their rows come in their order (`pipeline::row_order`).
    reached: BTreeMap<CommIndex, u64>,
    /// The last operation of the busiest communicator that has run.
    last: Option<Completion>,
    /// What the GPU was inside operations in this iteration so far, nanoseconds.
    kernel_ns: u64,
    /// Operations of this iteration so far.
    timed: TimedCount,
}

impl RunningBlocks {
    /// The blocks of a communicator that wait.
    pub(super) fn blocks_of(&mut self, comm: CommIndex) -> impl Iterator<Item = &mut OpenBlock> {
        self.blocks.get_mut(&comm).into_iter().flatten()
    }

    /// Takes back that operations of a communicator from a number on have run: others have these numbers.
    pub(super) fn on_renumber(&mut self, comm: CommIndex, from_seq: u64) {
        if let Some(reached) = self.reached.get_mut(&comm) {
            *reached = from_seq.saturating_sub(1).min(*reached);
        }
    }
}

impl Rollup {
    /// Takes an operation that has run.
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
        // One sample for each iteration; where none is known, one for each operation.
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

    /// What an operation shows to be complete: the iteration before it, if it begins one; itself where iterations are not known.
    fn completion(&mut self, completed: &CompletedOp, view: View<'_>) -> Option<Completion> {
        let own = completed.completion();
        if view.iteration_pattern.pattern().is_none() || completed.at.comm != self.primary {
            return own;
        }
        let before = std::mem::replace(&mut self.running.last, own);
        let is_before = |last: &Completion| last.seq + 1 == completed.at.seq;
        before.filter(|last| is_before(last) && view.iteration_pattern.begins_at(completed.at.seq))
    }

    /// Notes what the GPU was inside operations in the iteration that ended with the operation `last`.
    fn end_iteration(&mut self, last: Option<u64>) {
        let kernel_ns = std::mem::take(&mut self.running.kernel_ns);
        let timed = std::mem::take(&mut self.running.timed);
        if let Some(open) = last.and_then(|last| self.find_block(self.primary, last)) {
            open.device.blocked.add(millis(kernel_ns));
            open.device.timed.add(timed);
        }
    }

    /// Takes that the GPU was inside an operation, a transfer maybe.
    pub(super) fn add_kernel_time(&mut self, kernel_ns: u64) {
        self.running.kernel_ns = self.running.kernel_ns.saturating_add(kernel_ns);
    }

    /// Takes a block whose calls were all issued.
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

    /// Closes all blocks that wait, as they are.
    pub(super) fn close_running(&mut self, view: View<'_>) {
        for (index, blocks) in std::mem::take(&mut self.running.blocks) {
            for open in blocks {
                self.close(index, open, view);
            }
        }
    }

    /// Takes over when the block's operations were complete by the GPU, which knows it of each.
    pub(super) fn settle(open: &mut OpenBlock) {
        open.whole.completion = open.device.completion.or(open.whole.completion);
    }

    /// The points that the GPU told of a block.
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

    /// The block of an operation, open or waiting.
    fn find_block(&mut self, index: CommIndex, seq: u64) -> Option<&mut OpenBlock> {
        let mut all = self
            .running
            .blocks_of(index)
            .chain(self.open.get_mut(&index));
        all.find(|open| open.contains(seq))
    }

    /// Closes the blocks that have run, also those of which some operations were not told: what comes after them has run.
    fn close_finished(&mut self, index: CommIndex, view: View<'_>) {
        let reached = self.running.reached.get(&index).copied();
        // That an iteration is over shows in the first operation of the next one.
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
                // The plugin was switched off, and nothing more is waited for.
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
