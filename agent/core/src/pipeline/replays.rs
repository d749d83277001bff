//! Operations that CUDA graphs replay. No call issues them: their rows stand for the calls.
//!
//! NCCL reports the operations of a graph each time it is launched, enqueued at the launch. From
//! the first such row of a communicator on, all its rows stand for calls, including those of
//! operations that were called: the plugin numbers both in one sequence, and the calls of a
//! capture, which only record operations, have no rows.

use crate::correlate::{Issued, Observation, OpRef, Scope};
use crate::event::{GpuOperation, Operation};
use crate::pipeline::pending::PendingObservations;
use crate::pipeline::{Pipeline, State};

/// Placeholder for the element type, which rows lack.
const UNKNOWN_TYPE: u32 = u32::MAX;

/// Maximum number of consecutive missing rows that do not break a block: the plugin drops one now
/// and then.
const MAX_FILLED: u64 = 16;

impl Pipeline {
    /// Records the row of an operation as the call that issued it.
    pub(super) fn record_replayed(&mut self, operation: &GpuOperation, at: OpRef) {
        if self.replaying.insert(at.comm) {
            self.begin_replays(at);
        }
        let call = Operation {
            op: at.op,
            count: operation.count,
            datatype: UNKNOWN_TYPE,
            comm: operation.comm_id,
            seq: Some(at.seq),
            peer: None,
        };
        self.flush_activity();
        let scope = Scope::from(operation.nranks);
        let observation = self
            .correlator
            .issue(at.comm, scope, call, operation.host_ns);
        if let Observation::Issued(issued) = observation {
            let is_filled = (1..=MAX_FILLED).contains(&issued.missed);
            self.observe(Observation::Issued(Issued {
                is_filled,
                ..issued
            }));
        }
    }

    /// Invalidates the numbers of calls from a row on: those of a capture have none.
    fn begin_replays(&mut self, first: OpRef) {
        self.correlator.renumber(first.comm, first.seq);
        match &mut self.state {
            State::Learning(pending) => *pending = PendingObservations::default(),
            State::Rolling(rollup) => rollup.on_renumber(first.comm, first.seq),
        }
    }
}

#[cfg(test)]
mod tests;
