//! Windows of calls that are only counted in the kernel. Pure.

use std::collections::BTreeMap;

use crate::functions::{self, Function};
use fleet_agent_bpf::layout::{CallSum, FunctionSum};

use crate::recorder::line::{Counted, Line};

/// Counters at the last reading.
#[derive(Debug)]
pub(super) struct Windows {
    before: BTreeMap<(u32, u32), CallSum>,
    read_ns: u64,
}

impl Windows {
    /// Starts with zero counters at `now_ns`.
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            before: BTreeMap::new(),
            read_ns: now_ns,
        }
    }

    /// Returns the time of the last reading, nanoseconds.
    pub(super) fn read_ns(&self) -> u64 {
        self.read_ns
    }

    /// Compares the counters of all processes with the last reading and returns a line for each
    /// that rose. The second byte of `op` is the direction of a copy, or the type of an event.
    pub(super) fn update(&mut self, ts: u64, sums: &[FunctionSum]) -> Vec<Line> {
        let window_ns = ts.saturating_sub(self.read_ns);
        self.read_ns = ts;
        let mut lines = Vec::new();
        for FunctionSum { tgid, op, sum } in sums {
            let before = self.before.insert((*tgid, *op), *sum).unwrap_or_default();
            let calls = sum.calls.saturating_sub(before.calls);
            let [number, detail, ..] = op.to_le_bytes();
            let is_counted = |function: &&Function| !function.returns() && calls > 0;
            if let Some(function) = functions::by_number(number).filter(is_counted) {
                let counted = Counted {
                    pid: *tgid,
                    function,
                    calls,
                    bytes: sum.bytes.saturating_sub(before.bytes),
                    detail,
                };
                lines.push(Line::from_window(ts, window_ns, &counted));
            }
        }
        lines
    }

    /// Removes a process.
    pub(super) fn forget(&mut self, pid: u32) {
        self.before.retain(|(owner, _), _| *owner != pid);
    }
}
