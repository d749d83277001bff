//! What is only counted in the kernel, as sums since the last reading. Pure.

use std::collections::BTreeMap;

use crate::functions::{self, Function};
use fleet_agent_bpf::layout::CallSum;

use crate::recorder::line::{Counted, Line};

/// The sums at the last reading.
#[derive(Debug)]
pub(super) struct Windows {
    before: BTreeMap<(u32, u32), CallSum>,
    read_ns: u64,
}

impl Windows {
    /// Nothing was counted by `now_ns`.
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            before: BTreeMap::new(),
            read_ns: now_ns,
        }
    }

    /// When it was last read, nanoseconds.
    pub(super) fn read_ns(&self) -> u64 {
        self.read_ns
    }

    /// Takes the sums of all processes; a line for each of those that rose. `op` has the direction of a copy, or the
    /// type of an event, in its second byte.
    pub(super) fn update(&mut self, ts: u64, sums: &[(u32, u32, CallSum)]) -> Vec<Line> {
        let window_ns = ts.saturating_sub(self.read_ns);
        self.read_ns = ts;
        let mut lines = Vec::new();
        for (pid, op, sum) in sums {
            let before = self.before.insert((*pid, *op), *sum).unwrap_or_default();
            let calls = sum.calls.saturating_sub(before.calls);
            let [number, detail, ..] = op.to_le_bytes();
            let is_counted = |function: &&Function| !function.returns() && calls > 0;
            if let Some(function) = functions::by_number(number).filter(is_counted) {
                let counted = Counted {
                    pid: *pid,
                    function,
                    calls,
                    bytes: sum.bytes.saturating_sub(before.bytes),
                    detail,
                };
                lines.push(Line::from_window((ts, window_ns), &counted));
            }
        }
        lines
    }

    /// Forgets a process.
    pub(super) fn forget(&mut self, pid: u32) {
        self.before.retain(|(its, _), _| *its != pid);
    }
}
