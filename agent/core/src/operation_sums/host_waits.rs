//! Time for which a process was blocked in synchronisations with its GPU, summed over blocks of the
//! operations that it waited for.
//!
//! Where GPUs are not timed, these waits tell the same as durations do: ranks that wait for the same
//! operation return at once, so the last to enqueue it waits for the shortest time. A synchronisation
//! counts for the last operation enqueued before it, unless an earlier one has covered that. So a
//! block without any is a block without waiting, and a GPU that is late is not seen: its host waits
//! as long as the others.

use std::collections::HashSet;

use super::channel::{Channel, Ended, OpenBlocks};
use crate::correlate::{Issued, OpRef, Waited};
use crate::discover::Comm;
use crate::signal::{Point, Source, millis};

/// Waits of one process.
#[derive(Debug)]
pub struct HostWaits {
    blocks: OpenBlocks,
    /// Threads that are in a synchronisation.
    waiting: HashSet<u32>,
    is_disabled: bool,
}

impl Default for HostWaits {
    fn default() -> Self {
        Self {
            blocks: OpenBlocks::new(Source::Host),
            waiting: HashSet::new(),
            is_disabled: false,
        }
    }
}

impl HostWaits {
    /// Stops the sums of a process whose GPU is timed.
    pub fn disable(&mut self) {
        self.is_disabled = true;
        self.blocks.clear();
    }

    /// Adds an operation that was enqueued.
    pub fn record_issued(&mut self, issued: &Issued, comm: &Comm) {
        if self.is_disabled {
            return;
        }
        let channel = channel(issued.at, comm);
        let ended = Ended {
            seq: issued.at.seq,
            op: issued.at.op,
            ts_ns: issued.entry_ns,
        };
        if let Some(open) = self.blocks.record(channel, ended) {
            open.durations.count += 1;
        }
        // The latest block stays open: the host may still wait for its last operation.
        self.blocks.take_before(channel);
    }

    /// Notes that a thread waits. Blocks are not reported before it returns.
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
        if let Some(open) = self.blocks.find(channel(at, comm), at.seq) {
            let wait_ms = millis(waited.return_ns.saturating_sub(waited.entry_ns));
            open.durations.sum_ms += wait_ms;
            open.durations.max_ms = open.durations.max_ms.max(wait_ms);
            open.last_ts_ns = open.last_ts_ns.max(waited.return_ns);
        }
    }

    /// Drops the open blocks: events that belong to them may be lost.
    pub fn on_loss(&mut self) {
        self.blocks.clear();
        self.waiting.clear();
    }

    /// Reports the blocks to which nothing was added for a while at `now_ns`.
    pub fn tick(&mut self, now_ns: u64) {
        if self.waiting.is_empty() {
            self.blocks.tick(now_ns);
        }
    }

    /// Reports all blocks as they are.
    pub fn finish(&mut self) {
        self.blocks.finish();
    }

    /// Returns the points since the last call.
    pub fn take_points(&mut self) -> Vec<Point> {
        self.blocks.take_points()
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
