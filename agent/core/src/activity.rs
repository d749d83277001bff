//! Activity of a process on its host besides its collectives: evidence for why a rank is late,
//! never for whether it is.
//!
//! Threads count from their first call on: only the absence of those that issue or wait can delay
//! the GPU.

use std::collections::HashMap;

use crate::event::{
    Activity, Call, CallKind, ContextSwitch, CopiedBytes, Direction, KernelWork, MemoryCopy,
    OffCpuTime, SwitchReason,
};

/// Maximum number of threads tracked per process. No framework issues or waits on more.
const MAX_THREADS: usize = 1024;

impl Activity {
    /// Adds a later activity.
    pub fn add(&mut self, later: &Self) {
        if let Some(later) = later.threads {
            let sum = self.threads.get_or_insert_default();
            sum.off_cpu_ns = sum.off_cpu_ns.saturating_add(later.off_cpu_ns);
            sum.preempted_ns = sum.preempted_ns.saturating_add(later.preempted_ns);
            sum.preemptions += later.preemptions;
            add(&mut sum.run_queue_ns, later.run_queue_ns);
        }
        if let Some(later) = later.memcpy_bytes {
            let sum = self.memcpy_bytes.get_or_insert_default();
            sum.to_device = sum.to_device.saturating_add(later.to_device);
            sum.to_host = sum.to_host.saturating_add(later.to_host);
            sum.unspecified = sum.unspecified.saturating_add(later.unspecified);
        }
        if let Some(later) = later.kernel {
            let sum = self.kernel.get_or_insert_default();
            sum.page_allocations = sum.page_allocations.saturating_add(later.page_allocations);
            sum.block_io_ns = sum.block_io_ns.saturating_add(later.block_io_ns);
        }
        add(&mut self.launches, later.launches);
        add(&mut self.graph_launches, later.graph_launches);
        add(&mut self.tcp_retransmits, later.tcp_retransmits);
        add(&mut self.throttled_ns, later.throttled_ns);
        add(&mut self.rdma_errors, later.rdma_errors);
    }

    /// Applies a function to each counter that was seen.
    pub(crate) fn map(&self, amount: impl Fn(u64) -> u64) -> Self {
        Self {
            threads: self.threads.map(|sum| OffCpuTime {
                off_cpu_ns: amount(sum.off_cpu_ns),
                run_queue_ns: sum.run_queue_ns.map(&amount),
                preempted_ns: amount(sum.preempted_ns),
                preemptions: amount(sum.preemptions),
            }),
            memcpy_bytes: self.memcpy_bytes.map(|sum| CopiedBytes {
                to_device: amount(sum.to_device),
                to_host: amount(sum.to_host),
                unspecified: amount(sum.unspecified),
            }),
            launches: self.launches.map(&amount),
            graph_launches: self.graph_launches.map(&amount),
            kernel: self.kernel.map(|sum| KernelWork {
                page_allocations: amount(sum.page_allocations),
                block_io_ns: amount(sum.block_io_ns),
            }),
            tcp_retransmits: self.tcp_retransmits.map(&amount),
            throttled_ns: self.throttled_ns.map(&amount),
            rdma_errors: self.rdma_errors.map(&amount),
        }
    }
}

fn add(sum: &mut Option<u64>, later: Option<u64>) {
    if let Some(later) = later {
        *sum = Some(sum.unwrap_or(0).saturating_add(later));
    }
}

impl CopiedBytes {
    fn copied(&mut self, copy: MemoryCopy) {
        let sum = match copy.direction {
            Direction::ToDevice => &mut self.to_device,
            Direction::ToHost => &mut self.to_host,
            Direction::Unspecified => &mut self.unspecified,
            Direction::WithinDevice => return,
        };
        *sum = sum.saturating_add(copy.bytes);
    }

    /// Returns the sum over all directions.
    pub fn total(&self) -> u64 {
        self.to_device
            .saturating_add(self.to_host)
            .saturating_add(self.unspecified)
    }
}

/// Tracks the threads of one process.
///
/// A span off CPU is counted when it ends: at the switch that gives the thread a CPU again, or at a
/// call that shows that the thread runs. A source may omit the switches away from the idle task;
/// then that call is the first sign. A span without a visible end is ignored rather than guessed.
#[derive(Debug, Default)]
pub struct ActivityTracker {
    threads: HashMap<u32, Thread>,
    since_taken: Activity,
}

#[derive(Debug, Default)]
struct Thread {
    last_call: Option<LastCall>,
    away: Option<OffCpuSpan>,
}

#[derive(Debug, Clone, Copy)]
struct LastCall {
    return_ns: u64,
    is_wait: bool,
}

#[derive(Debug, Clone, Copy)]
struct OffCpuSpan {
    since_ns: u64,
    reason: SwitchReason,
}

impl ActivityTracker {
    /// Records a call of the process.
    pub fn record_call(&mut self, call: &Call) {
        if let CallKind::MemoryCopy(copy) = call.kind {
            self.since_taken
                .memcpy_bytes
                .get_or_insert_default()
                .copied(copy);
        }
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&call.tid) {
            return;
        }
        let thread = self.threads.entry(call.tid).or_default();
        if let Some(away) = thread.away.take() {
            let end_ns = thread.returned_after(away).unwrap_or(call.ts_ns);
            let is_wait = thread.waits_at(away);
            count(&mut self.since_taken, away, call.ts_ns.min(end_ns), is_wait);
        }
        thread.last_call = Some(LastCall {
            return_ns: call.return_ns(),
            is_wait: call.kind == CallKind::Synchronize,
        });
    }

    /// Records kernel launches of the process.
    pub fn record_launches(&mut self, n: u64) {
        add(&mut self.since_taken.launches, Some(n));
    }

    /// Records a context switch of the host, of this process or another one.
    pub fn record_switch(&mut self, switch: &ContextSwitch) {
        self.since_taken.threads.get_or_insert_default();
        self.switched_in(switch.next_tid, switch.ts_ns);
        if switch.reason == SwitchReason::Exited {
            self.threads.remove(&switch.prev_tid);
        } else {
            self.switched_out(switch);
        }
    }

    /// Returns the activity since the last call.
    ///
    /// A counter that was seen once stays reported, as 0 if need be: "never preempted" is an
    /// answer, "cannot see preemptions" is not.
    pub fn take_activity(&mut self) -> Activity {
        let zero = self.since_taken.map(|_| 0);
        std::mem::replace(&mut self.since_taken, zero)
    }

    fn switched_in(&mut self, tid: u32, ts_ns: u64) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if let Some(away) = thread.away.take() {
            let end_ns = thread.returned_after(away).unwrap_or(ts_ns);
            let is_wait = thread.waits_at(away);
            count(&mut self.since_taken, away, ts_ns.min(end_ns), is_wait);
        }
    }

    fn switched_out(&mut self, switch: &ContextSwitch) {
        let Some(thread) = self.threads.get_mut(&switch.prev_tid) else {
            return;
        };
        let away = OffCpuSpan {
            since_ns: switch.ts_ns,
            reason: switch.reason,
        };
        if let Some(before) = thread.away.replace(away) {
            let end_ns = thread.returned_after(before);
            let is_wait = thread.waits_at(before);
            if let Some(end_ns) = end_ns.filter(|end_ns| *end_ns <= switch.ts_ns) {
                count(&mut self.since_taken, before, end_ns, is_wait);
            }
        }
    }
}

impl Thread {
    /// Returns the end of the call that the thread was in when it left its CPU: it ran again by
    /// then.
    fn returned_after(&self, away: OffCpuSpan) -> Option<u64> {
        self.last_call
            .map(|call| call.return_ns)
            .filter(|return_ns| *return_ns > away.since_ns)
    }

    fn waits_at(&self, away: OffCpuSpan) -> bool {
        self.returned_after(away).is_some() && self.last_call.is_some_and(|call| call.is_wait)
    }
}

fn count(activity: &mut Activity, away: OffCpuSpan, end_ns: u64, is_wait: bool) {
    let sum = activity.threads.get_or_insert_default();
    let ns = end_ns.saturating_sub(away.since_ns);
    if away.reason == SwitchReason::Preempted {
        sum.preempted_ns = sum.preempted_ns.saturating_add(ns);
        sum.preemptions += 1;
    } else if !is_wait {
        sum.off_cpu_ns = sum.off_cpu_ns.saturating_add(ns);
    }
}

#[cfg(test)]
mod tests;
