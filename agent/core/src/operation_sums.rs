//! Durations of operations on the GPU, summed over blocks of consecutive operations of one
//! communicator. Pure: rows of the profiler plugin in, points out.
//!
//! A block has 2^k operations and starts at a multiple of 2^k. Every rank chooses k so that a block
//! lasts about half a second; since operations end everywhere at once, all ranks choose alike, and
//! the collector merges blocks where they do not. So the data do not depend on how many operations
//! a job does per second. Nothing here needs the offset of the GPU's timer, an iteration or a call
//! on the host: operations of CUDA graphs, and of communicators older than the agent, count alike.
//! Where GPUs are not timed, [`host_waits`] takes their place.

use crate::event::GpuOperation;
use crate::operation_sums::channel::{Channel, Ended, OpenBlocks, OpenSums};
use crate::signal::{Point, Source, millis};

mod channel;
pub mod host_waits;
mod times;

/// Sums of one process.
#[derive(Debug)]
pub struct OperationSums {
    blocks: OpenBlocks,
    /// First lead of the process, to which all are relative.
    first_lead_ns: Option<i128>,
}

impl Default for OperationSums {
    fn default() -> Self {
        Self {
            blocks: OpenBlocks::new(Source::Device),
            first_lead_ns: None,
        }
    }
}

impl OperationSums {
    /// Adds an operation that has run. Operations of one channel may come slightly out of order.
    pub fn record(&mut self, operation: &GpuOperation) {
        let channel = Channel {
            comm_id: operation.comm_id,
            rank: operation.rank,
            size: operation.nranks,
            is_transfer: !operation.op.is_collective(),
        };
        let ended = Ended {
            seq: operation.seq,
            op: operation.op,
            ts_ns: operation.ts_ns,
        };
        let Some(open) = self.blocks.record(channel, ended) else {
            return;
        };
        add_times(open, operation, &mut self.first_lead_ns);
        self.blocks.take_complete(channel);
    }

    /// Reports the blocks to which nothing was added for a while at `now_ns`.
    pub fn tick(&mut self, now_ns: u64) {
        self.blocks.tick(now_ns);
    }

    /// Reports all blocks as they are.
    pub fn finish(&mut self) {
        self.blocks.finish();
    }

    /// Returns the points since the last call.
    pub fn take_points(&mut self) -> Vec<Point> {
        self.blocks.take_points()
    }

    /// Returns the number of operations that are in no block: those of too many communicators, and
    /// those that came too late.
    pub fn left_out(&self) -> u64 {
        self.blocks.left_out()
    }
}

fn add_times(open: &mut OpenSums, operation: &GpuOperation, first_lead_ns: &mut Option<i128>) {
    let timer = operation.timer;
    let Some(span) = timer.filter(|span| span.start_ns <= span.stop_ns) else {
        return;
    };
    let lead_ns = i128::from(span.start_ns) - i128::from(operation.host_ns);
    let lead_ms = signed_millis(lead_ns - *first_lead_ns.get_or_insert(lead_ns));
    let duration_ms = millis(span.stop_ns - span.start_ns);
    if operation.op.waits_for_all() {
        open.times.add(duration_ms, lead_ms);
    } else if let Some(root) = operation.root.filter(|root| *root < operation.nranks) {
        open.rooted.add(root, duration_ms, lead_ms);
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days, far above any difference of leads"
)]
fn signed_millis(ns: i128) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests;
