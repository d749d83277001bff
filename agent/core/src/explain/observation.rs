//! What was seen of one process in one period.

use std::collections::BTreeMap;

use crate::event::{
    Activity, BlockReason, CallDurations, Delays, Frame, FunctionDurations, OffCpuTime, Pressure,
    Stack, StackSample,
};

/// Maximum number of different stacks that are kept of a period.
const MAX_STACKS: usize = 256;
/// What was seen of one process in one period; `None` for what the source cannot see. Times are
/// sums over the threads that call the GPU's libraries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observation {
    /// Time off the CPU.
    pub threads: Option<OffCpuTime>,
    /// Tasks that had the CPU while a thread was runnable, by name and CPU: nanoseconds.
    pub preempted_by: BTreeMap<(String, u32), u64>,
    /// Time for which other processes computed on its GPU, by name and id: nanoseconds; `None` if that is
    /// not seen.
    pub gpu_shared_by: Option<BTreeMap<String, u64>>,
    /// Time blocked, by reason; `None` if reasons are not seen.
    pub blocked: Option<BTreeMap<BlockReason, u64>>,
    /// Time for which the cgroup was throttled at its CPU quota, nanoseconds.
    pub cgroup_throttled_ns: Option<u64>,
    /// Longest time for which a thread had no CPU after a preemption, nanoseconds.
    pub longest_preemption_ns: Option<u64>,
    /// Longest time blocked at a stretch, by reason, nanoseconds.
    pub longest_blocked: BTreeMap<BlockReason, u64>,
    /// Time of interrupts on the CPU of a running thread, nanoseconds.
    pub interrupt_ns: Option<u64>,
    /// TCP segments that the host sent again.
    pub tcp_retransmits: Option<u64>,
    /// Pressure stall time of the cgroup, or else of the host.
    pub pressure: Option<Pressure>,
    /// Launches of CUDA graphs, where they are counted.
    pub graph_launches: Option<u64>,
    /// Calls by function, copies with their direction.
    pub calls: BTreeMap<String, FunctionDurations>,
    /// Samples by the function that the thread was in, and stack.
    pub stacks: BTreeMap<(Option<String>, Stack), u64>,
    /// Samples of its worker processes by stack.
    pub worker_stacks: BTreeMap<Stack, u64>,
    /// Samples in which the thread was certainly in no GPU library, by innermost Python line.
    pub outside: BTreeMap<Frame, u64>,
}

impl Observation {
    /// Returns whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what was seen later.
    pub fn merge(&mut self, later: &Self) {
        if let Some(later) = later.threads {
            self.add_threads(later);
        }
        for (task, ns) in &later.preempted_by {
            let sum = self.preempted_by.entry(task.clone()).or_default();
            *sum = sum.saturating_add(*ns);
        }
        if let Some(later) = &later.gpu_shared_by {
            let known = self.gpu_shared_by.get_or_insert_default();
            for (name, ns) in later {
                let sum = known.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*ns);
            }
        }
        if let Some(later) = &later.blocked {
            let blocked = self.blocked.get_or_insert_default();
            for (reason, ns) in later {
                let sum = blocked.entry(*reason).or_default();
                *sum = sum.saturating_add(*ns);
            }
        }
        self.add_longest(later.longest_preemption_ns, &later.longest_blocked);
        add(&mut self.cgroup_throttled_ns, later.cgroup_throttled_ns);
        add(&mut self.interrupt_ns, later.interrupt_ns);
        add(&mut self.tcp_retransmits, later.tcp_retransmits);
        add(&mut self.graph_launches, later.graph_launches);
        if let Some(later) = later.pressure {
            self.add_pressure(later);
        }
        later
            .calls
            .values()
            .for_each(|calls| self.add_function(calls));
        for ((call, stack), samples) in &later.stacks {
            self.add_samples(call.clone(), stack, *samples);
        }
        for (stack, samples) in &later.worker_stacks {
            self.add_worker_samples(stack, *samples);
        }
        for (line, samples) in &later.outside {
            self.add_outside(line, *samples);
        }
    }

    pub(super) fn add_activity(&mut self, activity: &Activity) {
        if let Some(threads) = activity.threads {
            self.add_threads(threads);
        }
        add(&mut self.graph_launches, activity.graph_launches);
        add(&mut self.tcp_retransmits, activity.tcp_retransmits);
    }

    fn add_threads(&mut self, later: OffCpuTime) {
        let sum = self.threads.get_or_insert_default();
        sum.off_cpu_ns = sum.off_cpu_ns.saturating_add(later.off_cpu_ns);
        sum.preempted_ns = sum.preempted_ns.saturating_add(later.preempted_ns);
        sum.preemptions = sum.preemptions.saturating_add(later.preemptions);
        if let Some(run_queue_ns) = later.run_queue_ns {
            let sum = sum.run_queue_ns.get_or_insert_default();
            *sum = sum.saturating_add(run_queue_ns);
        }
    }

    pub(super) fn add_delays(&mut self, delays: &Delays) {
        if let Some(processes) = &delays.gpu_shared_by {
            // The GPU's driver tells nothing about threads.
            let known = self.gpu_shared_by.get_or_insert_default();
            for other in processes {
                let sum = known.entry(other.task.clone()).or_default();
                *sum = sum.saturating_add(other.ns);
            }
            return;
        }
        for task in &delays.preempted_by {
            let sum = self
                .preempted_by
                .entry((task.task.clone(), task.cpu.unwrap_or_default()))
                .or_default();
            *sum = sum.saturating_add(task.ns);
        }
        let blocked = self.blocked.get_or_insert_default();
        for part in &delays.blocked {
            let sum = blocked.entry(part.reason).or_default();
            *sum = sum.saturating_add(part.ns);
        }
        let known = delays.blocked.iter().filter(|part| part.longest_ns > 0);
        let blocked = known.map(|part| (part.reason, part.longest_ns));
        self.add_longest(delays.longest_preemption_ns, &blocked.collect());
        add(&mut self.cgroup_throttled_ns, delays.cgroup_throttled_ns);
        add(&mut self.interrupt_ns, delays.interrupt_ns);
        if let Some(pressure) = delays.pressure {
            self.add_pressure(pressure);
        }
    }

    fn add_longest(&mut self, preemption_ns: Option<u64>, blocked: &BTreeMap<BlockReason, u64>) {
        self.longest_preemption_ns = self.longest_preemption_ns.max(preemption_ns);
        for (reason, ns) in blocked {
            let longest = self.longest_blocked.entry(*reason).or_default();
            *longest = (*longest).max(*ns);
        }
    }

    fn add_pressure(&mut self, later: Pressure) {
        let sum = self.pressure.get_or_insert_default();
        sum.cpu_ns = sum.cpu_ns.saturating_add(later.cpu_ns);
        sum.memory_ns = sum.memory_ns.saturating_add(later.memory_ns);
        sum.io_ns = sum.io_ns.saturating_add(later.io_ns);
    }

    pub(super) fn add_calls(&mut self, calls: &CallDurations) {
        calls
            .calls
            .iter()
            .for_each(|calls| self.add_function(calls));
    }

    fn add_function(&mut self, later: &FunctionDurations) {
        match self.calls.get_mut(&later.label()) {
            Some(sum) => sum.merge(later),
            None => {
                self.calls.insert(later.label(), later.clone());
            }
        }
    }

    pub(super) fn add_stack(&mut self, sample: &StackSample) {
        if sample.is_worker {
            self.add_worker_samples(&sample.stack, sample.samples);
            return;
        }
        self.add_samples(sample.call.clone(), &sample.stack, sample.samples);
        if let Some(line) = sample.stack.python_line() {
            self.add_outside(line, sample.outside);
        }
    }

    fn add_worker_samples(&mut self, stack: &Stack, samples: u64) {
        if self.worker_stacks.len() < MAX_STACKS || self.worker_stacks.contains_key(stack) {
            let sum = self.worker_stacks.entry(stack.clone()).or_default();
            *sum = sum.saturating_add(samples);
        }
    }

    fn add_outside(&mut self, line: &Frame, samples: u64) {
        let is_kept = self.outside.len() < MAX_STACKS || self.outside.contains_key(line);
        if samples > 0 && is_kept {
            let sum = self.outside.entry(line.clone()).or_default();
            *sum = sum.saturating_add(samples);
        }
    }

    fn add_samples(&mut self, call: Option<String>, stack: &Stack, samples: u64) {
        let key = (call, stack.clone());
        if self.stacks.len() < MAX_STACKS || self.stacks.contains_key(&key) {
            let sum = self.stacks.entry(key).or_default();
            *sum = sum.saturating_add(samples);
        }
    }

    pub(super) fn blocked_ns(&self, reason: BlockReason) -> Option<u64> {
        let blocked = self.blocked.as_ref()?;
        Some(blocked.get(&reason).copied().unwrap_or(0))
    }

    /// Returns the processes that computed on its GPU, with the time: largest time first.
    pub fn gpu_neighbours(&self) -> Vec<(&str, u64)> {
        let others = self.gpu_shared_by.iter().flatten();
        let mut others: Vec<(&str, u64)> = others.map(|(name, ns)| (name.as_str(), *ns)).collect();
        others.sort_by_key(|(name, ns)| (std::cmp::Reverse(*ns), *name));
        others
    }

    /// Returns the tasks that took the CPU, with the CPU and the time: largest time first.
    pub fn tasks(&self) -> Vec<(&str, u32, u64)> {
        let tasks = self.preempted_by.iter();
        let mut tasks: Vec<(&str, u32, u64)> = tasks
            .map(|((task, cpu), ns)| (task.as_str(), *cpu, *ns))
            .collect();
        tasks.sort_by_key(|(task, cpu, ns)| (std::cmp::Reverse(*ns), *task, *cpu));
        tasks
    }
}

fn add(sum: &mut Option<u64>, later: Option<u64>) {
    if let Some(later) = later {
        *sum = Some(sum.unwrap_or(0).saturating_add(later));
    }
}
