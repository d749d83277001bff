//! Orders calls by the time at which they take effect: a collective at its entry, a synchronization
//! and a new communicator at their return.

use std::collections::BTreeMap;

use crate::event::{Call, CallKind, CommInit, Entered, Operation};

/// Minimum duration of a synchronization that really waited for the GPU, nanoseconds (exclusive).
pub const BLOCKING_NS: u64 = 500_000;

// A thread has at most one wait at a time, so only malicious input exceeds this limit.
const MAX_PENDING: usize = 4096;

/// Effect of a call in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Operation issued on a communicator.
    Issued {
        /// Thread id.
        tid: u32,
        /// Entry of the call, nanoseconds.
        entry_ns: u64,
        /// Operation.
        operation: Operation,
    },
    /// Start of a wait for the GPU.
    WaitBegan {
        /// Thread id.
        tid: u32,
        /// Entry of the call, nanoseconds.
        entry_ns: u64,
    },
    /// End of a wait for the GPU.
    WaitEnded {
        /// Thread id.
        tid: u32,
        /// Entry of the call, nanoseconds.
        entry_ns: u64,
        /// Return of the call, nanoseconds.
        return_ns: u64,
    },
    /// Communicator ready for use.
    CommReady {
        /// Thread that created it.
        tid: u32,
        /// Arguments of its initialization.
        init: CommInit,
    },
    /// Communicator destroyed.
    CommGone {
        /// Pointer, where known.
        comm: Option<u64>,
    },
}

/// Delays steps until they take effect.
#[derive(Debug, Default)]
pub struct StepQueue {
    pending: BTreeMap<(u64, u64), Step>,
    pushed: u64,
    counts_short_waits: bool,
}

impl StepQueue {
    /// Sets whether short synchronizations count as waits from now on.
    pub fn count_short_waits(&mut self, counts_short_waits: bool) {
        self.counts_short_waits = counts_short_waits;
    }

    /// Adds the next call in order of entry and appends to `steps` everything that has taken effect
    /// by then.
    pub fn push(&mut self, call: &Call, steps: &mut Vec<Step>) {
        self.release_until(call.ts_ns, steps);
        let tid = call.tid;
        match call.kind {
            CallKind::Operation(operation) => {
                steps.push(Step::Issued {
                    tid,
                    entry_ns: call.ts_ns,
                    operation,
                });
            }
            CallKind::Synchronize if self.is_wait(call) => {
                let (entry_ns, return_ns) = (call.ts_ns, call.return_ns());
                steps.push(Step::WaitBegan { tid, entry_ns });
                self.defer(
                    return_ns,
                    Step::WaitEnded {
                        tid,
                        entry_ns,
                        return_ns,
                    },
                );
            }
            CallKind::CommInit(init) => {
                self.defer(call.return_ns(), Step::CommReady { tid, init });
            }
            CallKind::CommDestroy { comm } => steps.push(Step::CommGone { comm }),
            CallKind::Synchronize | CallKind::MemoryCopy(_) | CallKind::Other => {}
        }
        if self.pending.len() > MAX_PENDING {
            steps.extend(self.pending.pop_first().map(|(_, step)| step));
        }
    }

    /// Adds the entry of a call that has not returned yet, in order of entry.
    pub fn push_entry(&mut self, entered: &Entered, steps: &mut Vec<Step>) {
        let Entered {
            ts_ns, tid, kind, ..
        } = *entered;
        self.release_until(ts_ns, steps);
        match kind {
            CallKind::Operation(operation) => steps.push(Step::Issued {
                tid,
                entry_ns: ts_ns,
                operation,
            }),
            CallKind::Synchronize => {
                let entry_ns = ts_ns;
                steps.push(Step::WaitBegan { tid, entry_ns });
            }
            CallKind::CommDestroy { comm } => steps.push(Step::CommGone { comm }),
            // A new communicator takes effect at its return.
            CallKind::CommInit(_) | CallKind::MemoryCopy(_) | CallKind::Other => {}
        }
    }

    /// Adds the return of a call whose entry was added before, in order of return.
    pub fn push_return(&mut self, call: &Call, steps: &mut Vec<Step>) {
        let (tid, entry_ns, return_ns) = (call.tid, call.ts_ns, call.return_ns());
        self.release_until(return_ns, steps);
        match call.kind {
            CallKind::Synchronize if self.is_wait(call) => steps.push(Step::WaitEnded {
                tid,
                entry_ns,
                return_ns,
            }),
            CallKind::CommInit(init) => steps.push(Step::CommReady { tid, init }),
            CallKind::Operation(_)
            | CallKind::Synchronize
            | CallKind::CommDestroy { .. }
            | CallKind::MemoryCopy(_)
            | CallKind::Other => {}
        }
    }

    /// Appends all delayed steps in order.
    pub fn finish(&mut self, steps: &mut Vec<Step>) {
        self.release_until(u64::MAX, steps);
    }

    fn is_wait(&self, call: &Call) -> bool {
        call.dur_ns > BLOCKING_NS || self.counts_short_waits
    }

    fn defer(&mut self, until_ns: u64, step: Step) {
        self.pushed += 1;
        self.pending.insert((until_ns, self.pushed), step);
    }

    /// Appends to `steps` everything that has taken effect by `now_ns`.
    pub fn release_until(&mut self, now_ns: u64, steps: &mut Vec<Step>) {
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().0 > now_ns {
                return;
            }
            steps.push(entry.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Op;

    fn call(ts_ns: u64, dur_ns: u64, tid: u32, kind: CallKind) -> Call {
        Call {
            ts_ns,
            dur_ns,
            pid: 1,
            tid,
            kind,
        }
    }

    fn all_reduce() -> CallKind {
        CallKind::Operation(Operation {
            op: Op::AllReduce,
            count: 1,
            datatype: 7,
            comm: 1,
            seq: None,
            peer: None,
        })
    }

    fn run(calls: &[Call]) -> Vec<Step> {
        let (mut queue, mut steps) = (StepQueue::default(), Vec::new());
        for call in calls {
            queue.push(call, &mut steps);
        }
        queue.finish(&mut steps);
        steps
    }

    #[test]
    fn a_wait_takes_effect_at_its_return() {
        let steps = run(&[
            call(0, 10_000_000, 1, CallKind::Synchronize),
            call(5_000_000, 20_000, 2, all_reduce()),
            call(10_000_000, 20_000, 2, all_reduce()),
        ]);
        assert!(matches!(
            steps[..],
            [
                Step::WaitBegan { tid: 1, .. },
                Step::Issued {
                    entry_ns: 5_000_000,
                    ..
                },
                Step::WaitEnded {
                    return_ns: 10_000_000,
                    ..
                },
                Step::Issued {
                    entry_ns: 10_000_000,
                    ..
                },
            ]
        ));
    }

    #[test]
    fn a_call_reported_in_two_parts_yields_the_steps_of_a_whole_one() {
        let wait = call(0, 10_000_000, 1, CallKind::Synchronize);
        let within = call(5_000_000, 20_000, 2, all_reduce());
        let after = call(10_000_000, 20_000, 2, all_reduce());
        let (mut queue, mut steps) = (StepQueue::default(), Vec::new());
        let entered = Entered {
            ts_ns: 0,
            pid: 1,
            tid: 1,
            kind: wait.kind,
        };
        queue.push_entry(&entered, &mut steps);
        queue.push(&within, &mut steps);
        queue.push_return(&wait, &mut steps);
        queue.push(&after, &mut steps);
        assert_eq!(steps, run(&[wait, within, after]));
    }

    #[test]
    fn a_synchronization_that_did_not_wait_is_dropped() {
        assert!(run(&[call(0, BLOCKING_NS, 1, CallKind::Synchronize)]).is_empty());
    }

    #[test]
    fn a_short_synchronization_counts_when_short_waits_are_enabled() {
        let short = call(0, BLOCKING_NS, 1, CallKind::Synchronize);
        let (mut queue, mut steps) = (StepQueue::default(), Vec::new());
        queue.count_short_waits(true);
        queue.push(&short, &mut steps);
        queue.finish(&mut steps);
        queue.count_short_waits(false);
        queue.push_return(&short, &mut steps);
        assert!(matches!(
            steps[..],
            [Step::WaitBegan { .. }, Step::WaitEnded { .. }]
        ));
    }

    #[test]
    fn the_number_of_delayed_steps_is_bounded() {
        let (mut queue, mut steps) = (StepQueue::default(), Vec::new());
        for ts_ns in 0..2 * MAX_PENDING as u64 {
            queue.push(&call(ts_ns, u64::MAX, 1, CallKind::Synchronize), &mut steps);
        }
        assert_eq!(queue.pending.len(), MAX_PENDING);
    }
}
