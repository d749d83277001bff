//! Delays of a process on its host: which tasks ran in its place, why its threads were blocked, and
//! what its cgroup and interrupts took.

/// Maximum number of tasks named in [`Delays::preempted_by`] and [`Delays::gpu_shared_by`]; the rest is one
/// entry.
pub const MAX_NAMED_TASKS: usize = 3;
/// Name of the entry that sums up the tasks beyond [`MAX_NAMED_TASKS`].
pub const OTHER_TASKS: &str = fleet_proto::attribute::OTHER_TASKS;

/// Delays of a process over a short window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelaySample {
    /// Beginning of the window, nanoseconds.
    pub from_ns: u64,
    /// End of the window, nanoseconds.
    pub ts_ns: u64,
    /// The process.
    pub pid: u32,
    /// Delays in the window.
    pub delays: Delays,
}

/// Delays of a process over some time; `None` for what the source cannot see. Times of tasks and
/// interrupts are sums over the threads that call the GPU's libraries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delays {
    /// Tasks that ran while threads of the process were runnable, largest time first: at most
    /// [`MAX_NAMED_TASKS`], and the rest as [`OTHER_TASKS`].
    pub preempted_by: Vec<TaskTime>,
    /// Longest time for which a thread had no CPU after a preemption, nanoseconds.
    pub longest_preemption_ns: Option<u64>,
    /// Other processes that computed on the GPU of the process, in the same order.
    pub gpu_shared_by: Option<Vec<TaskTime>>,
    /// Time for which all of these threads were blocked, by the reason of the one that called last,
    /// largest first. A thread that waits for the GPU is not blocked.
    pub blocked: Vec<BlockedTime>,
    /// Time for which the process's cgroup was throttled at its CPU quota, nanoseconds.
    pub cgroup_throttled_ns: Option<u64>,
    /// Time of interrupts and softirqs on the CPU of a thread while it was running, nanoseconds.
    pub interrupt_ns: Option<u64>,
    /// Pressure stall time of the process's cgroup, or of the host if the cgroup has no pressure
    /// files.
    pub pressure: Option<Pressure>,
}

impl Delays {
    /// Sorts the tasks by time and sums up those beyond [`MAX_NAMED_TASKS`].
    pub fn name_largest_tasks(&mut self) {
        name_largest(&mut self.preempted_by);
        if let Some(processes) = &mut self.gpu_shared_by {
            name_largest(processes);
        }
    }

    /// Adds later delays.
    pub fn add(&mut self, later: &Self) {
        add_tasks(&mut self.preempted_by, &later.preempted_by);
        if let Some(later) = &later.gpu_shared_by {
            add_tasks(self.gpu_shared_by.get_or_insert_default(), later);
        }
        for blocked in &later.blocked {
            let is_same = |known: &&mut BlockedTime| known.reason == blocked.reason;
            if let Some(known) = self.blocked.iter_mut().find(is_same) {
                known.ns = known.ns.saturating_add(blocked.ns);
                known.count = known.count.saturating_add(blocked.count);
                known.longest_ns = known.longest_ns.max(blocked.longest_ns);
            } else {
                self.blocked.push(*blocked);
            }
        }
        self.longest_preemption_ns = self.longest_preemption_ns.max(later.longest_preemption_ns);
        add(&mut self.cgroup_throttled_ns, later.cgroup_throttled_ns);
        add(&mut self.interrupt_ns, later.interrupt_ns);
        if let Some(later) = later.pressure {
            let sum = self.pressure.get_or_insert_default();
            sum.cpu_ns = sum.cpu_ns.saturating_add(later.cpu_ns);
            sum.memory_ns = sum.memory_ns.saturating_add(later.memory_ns);
            sum.io_ns = sum.io_ns.saturating_add(later.io_ns);
        }
    }

    /// Applies a function to each amount; tasks and reasons of which nothing is left are removed.
    pub(crate) fn map(&self, amount: impl Fn(u64) -> u64) -> Self {
        let task = |task: &TaskTime| TaskTime {
            task: task.task.clone(),
            cpu: task.cpu,
            ns: amount(task.ns),
            switches: amount(task.switches),
        };
        let blocked = |blocked: &BlockedTime| BlockedTime {
            reason: blocked.reason,
            ns: amount(blocked.ns),
            count: amount(blocked.count),
            longest_ns: blocked.longest_ns,
        };
        let tasks = |all: &[TaskTime]| {
            let some = all.iter().map(task).filter(|task| task.ns > 0);
            some.collect::<Vec<_>>()
        };
        let reasons = self.blocked.iter().map(blocked);
        Self {
            preempted_by: tasks(&self.preempted_by),
            longest_preemption_ns: self.longest_preemption_ns,
            gpu_shared_by: self.gpu_shared_by.as_deref().map(tasks),
            blocked: reasons.filter(|blocked| blocked.ns > 0).collect(),
            cgroup_throttled_ns: self.cgroup_throttled_ns.map(&amount),
            interrupt_ns: self.interrupt_ns.map(&amount),
            pressure: self.pressure.map(|pressure| Pressure {
                cpu_ns: amount(pressure.cpu_ns),
                memory_ns: amount(pressure.memory_ns),
                io_ns: amount(pressure.io_ns),
            }),
        }
    }

    /// Returns the time blocked for a reason, nanoseconds.
    pub fn blocked_ns(&self, reason: BlockReason) -> u64 {
        let of_reason = self
            .blocked
            .iter()
            .filter(|blocked| blocked.reason == reason);
        of_reason.map(|blocked| blocked.ns).sum()
    }
}

fn name_largest(tasks: &mut Vec<TaskTime>) {
    let rank = |task: &TaskTime| (task.task == OTHER_TASKS, std::cmp::Reverse(task.ns));
    tasks.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.task.cmp(&b.task)));
    let rest = tasks.split_off(tasks.len().min(MAX_NAMED_TASKS));
    let others = rest.into_iter().reduce(|sum, task| TaskTime {
        ns: sum.ns.saturating_add(task.ns),
        switches: sum.switches.saturating_add(task.switches),
        ..sum
    });
    tasks.extend(others.map(|others| TaskTime {
        task: OTHER_TASKS.to_owned(),
        ..others
    }));
}

fn add_tasks(sums: &mut Vec<TaskTime>, later: &[TaskTime]) {
    for task in later {
        if let Some(known) = sums.iter_mut().find(|known| known.task == task.task) {
            known.cpu = task.cpu;
            known.ns = known.ns.saturating_add(task.ns);
            known.switches = known.switches.saturating_add(task.switches);
        } else {
            sums.push(task.clone());
        }
    }
}

fn add(sum: &mut Option<u64>, later: Option<u64>) {
    if let Some(later) = later {
        *sum = Some(sum.unwrap_or(0).saturating_add(later));
    }
}

/// Time for which another task had the CPU while a thread of the process was runnable, or another
/// process computed on its GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTime {
    /// Name of the task, as in `/proc/PID/comm`; of a process on the GPU its name and id.
    pub task: String,
    /// CPU on which it ran; for [`OTHER_TASKS`] that of the largest part; `None` on a GPU.
    pub cpu: Option<u32>,
    /// Time, nanoseconds.
    pub ns: u64,
    /// Number of times the task was switched in; 0 on a GPU.
    pub switches: u64,
}

/// Time for which a process was blocked for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockedTime {
    /// Reason.
    pub reason: BlockReason,
    /// Time, nanoseconds.
    pub ns: u64,
    /// Number of times.
    pub count: u64,
    /// Longest time at a stretch, nanoseconds; 0 if it is not known.
    pub longest_ns: u64,
}

/// Reason why a thread was blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockReason {
    /// Futex: mutex, condition variable, semaphore or join of another thread.
    Lock,
    /// Read or write of a block device.
    BlockIo,
    /// Page fault that had to wait.
    PageFault,
    /// Socket, or poll of sockets.
    Network,
    /// Pipe.
    Pipe,
    /// Timer.
    Sleep,
    /// Anything else.
    Other,
}

impl BlockReason {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Lock,
        Self::BlockIo,
        Self::PageFault,
        Self::Network,
        Self::Pipe,
        Self::Sleep,
        Self::Other,
    ];

    /// Returns its name in recordings and in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::BlockIo => "block_io",
            Self::PageFault => "page_fault",
            Self::Network => "network",
            Self::Pipe => "pipe",
            Self::Sleep => "sleep",
            Self::Other => "other",
        }
    }

    /// Returns the reason of a name; `None` for an unknown one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// Pressure stall time: at least one task waited for the resource ("some" of PSI).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// CPU, nanoseconds.
    pub cpu_ns: u64,
    /// Memory, nanoseconds.
    pub memory_ns: u64,
    /// I/O, nanoseconds.
    pub io_ns: u64,
}
