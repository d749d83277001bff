//! Plain events of traced processes, as every source yields them. Times are nanoseconds of the
//! source's monotonic clock.

mod delay;
mod exit;
mod gpu;
mod in_flight;
mod latency;
mod operation;
mod stack;

pub use crate::event::delay::{
    BlockReason, BlockedTime, DelaySample, Delays, MAX_NAMED_TASKS, OTHER_TASKS, Pressure, TaskTime,
};
pub use crate::event::exit::{Exit, ExitStatus};
pub use crate::event::gpu::{CommState, GpuOperation, GpuSpan};
pub use crate::event::in_flight::{CallProbes, InFlight, Unprobed};
pub use crate::event::latency::{CallDurations, FunctionDurations, LaunchSizes, LogHistogram};
pub use crate::event::operation::{CommInit, Op, Operation};
pub use crate::event::stack::{Frame, Stack, StackSample};

/// Event of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Start of tracing of a process. A recording lists its processes in the header instead.
    Started(Box<Started>),
    /// Library call that has returned, stamped at its entry.
    Call(Call),
    /// Library call that has not returned yet, stamped at its entry. Only live sources yield it.
    Entered(Entered),
    /// Return of a call whose entry was reported before, stamped at the return.
    Returned(Call),
    /// Kernel launches of one process, counted over a short window.
    Launches(Launches),
    /// Context switch on one CPU.
    ContextSwitch(ContextSwitch),
    /// Activity of a process on its host, summed up by the source.
    Activity(ActivitySample),
    /// Delays of a process on its host, summed up by the source.
    Delays(Box<DelaySample>),
    /// Durations of library calls of a process, counted over a short window.
    CallDurations(Box<CallDurations>),
    /// Operation that ran on a GPU, stamped at its end.
    GpuOperation(GpuOperation),
    /// State of a communicator older than the agent, read from memory and stamped at the end of the
    /// read.
    CommState(CommState),
    /// Stack of a sampled thread.
    Stack(Box<StackSample>),
    /// Loss of events: those of any process since the previous loss (or the start) may be missing.
    Lost(Lost),
    /// End of a process; no events of it follow.
    Ended(Ended),
}

impl Event {
    /// Timestamp of the event, nanoseconds.
    pub fn ts_ns(&self) -> u64 {
        match self {
            Self::Started(started) => started.ts_ns,
            Self::Call(call) => call.ts_ns,
            Self::Entered(entered) => entered.ts_ns,
            Self::Returned(call) => call.return_ns(),
            Self::Launches(launches) => launches.ts_ns,
            Self::ContextSwitch(switch) => switch.ts_ns,
            Self::Activity(measured) => measured.ts_ns,
            Self::Delays(measured) => measured.ts_ns,
            Self::CallDurations(measured) => measured.ts_ns,
            Self::GpuOperation(operation) => operation.ts_ns,
            Self::CommState(state) => state.ts_ns,
            Self::Stack(sample) => sample.ts_ns,
            Self::Lost(lost) => lost.ts_ns,
            Self::Ended(ended) => ended.ts_ns,
        }
    }
}

impl Event {
    /// Process of the event; `None` if it concerns the whole host.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Started(started) => Some(started.process.pid),
            Self::Call(call) | Self::Returned(call) => Some(call.pid),
            Self::Entered(entered) => Some(entered.pid),
            Self::Launches(launches) => Some(launches.pid),
            Self::Activity(measured) => Some(measured.pid),
            Self::Delays(measured) => Some(measured.pid),
            Self::CallDurations(measured) => Some(measured.pid),
            Self::GpuOperation(operation) => Some(operation.pid),
            Self::CommState(state) => Some(state.pid),
            Self::Stack(sample) => Some(sample.pid),
            Self::Ended(ended) => Some(ended.pid),
            Self::ContextSwitch(_) | Self::Lost(_) => None,
        }
    }
}

/// Start of tracing of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Start of tracing, nanoseconds.
    pub ts_ns: u64,
    /// The process and its rank.
    pub process: Process,
    /// Labels of its points.
    pub labels: Labels,
}

/// Labels of a process's points besides its rank; `None` where unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels {
    /// Job.
    pub job: Option<String>,
    /// Kubernetes namespace.
    pub namespace: Option<String>,
    /// Kubernetes pod.
    pub pod: Option<String>,
    /// Unique identity of its GPU.
    pub gpu_uuid: Option<String>,
    /// Model of its GPU.
    pub gpu_model: Option<String>,
}

/// Library call that has not returned yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entered {
    /// Entry of the call, nanoseconds.
    pub ts_ns: u64,
    /// Calling process.
    pub pid: u32,
    /// Calling thread.
    pub tid: u32,
    /// Function called.
    pub kind: CallKind,
}

/// Activity of a process on its host over a short window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivitySample {
    /// Beginning of the window, nanoseconds.
    pub from_ns: u64,
    /// End of the window, nanoseconds.
    pub ts_ns: u64,
    /// The process.
    pub pid: u32,
    /// Activity in the window.
    pub activity: Activity,
}

/// Activity of a process over some time; `None` for what the source cannot see. Times are sums over
/// its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// Time that its threads spent off CPU.
    pub threads: Option<OffCpuTime>,
    /// Bytes copied between host and device.
    pub memcpy_bytes: Option<CopiedBytes>,
    /// Kernel launches.
    pub launches: Option<u64>,
    /// Launches of CUDA graphs.
    pub graph_launches: Option<u64>,
    /// Work of the kernel's memory and block layers for the process.
    pub kernel: Option<KernelWork>,
    /// TCP segments retransmitted by its host.
    pub tcp_retransmits: Option<u64>,
    /// Time during which the clocks of its GPU were throttled, nanoseconds.
    pub throttled_ns: Option<u64>,
    /// RDMA packets lost or retransmitted by its host, and errors that RDMA devices reported to the
    /// process.
    pub rdma_errors: Option<u64>,
}

/// Time during which threads did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffCpuTime {
    /// Blocked, except in a synchronization with the GPU, nanoseconds.
    pub off_cpu_ns: u64,
    /// Runnable after a wake-up, waiting for a CPU, nanoseconds; `None` when the source does not
    /// see wake-ups.
    pub run_queue_ns: Option<u64>,
    /// Runnable after a preemption, nanoseconds.
    pub preempted_ns: u64,
    /// Number of preemptions.
    pub preemptions: u64,
}

/// Bytes copied, by direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopiedBytes {
    /// Host to device.
    pub to_device: u64,
    /// Device to host.
    pub to_host: u64,
    /// Between host and device, in a direction that the call does not specify.
    pub unspecified: u64,
}

/// Work of the kernel for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelWork {
    /// Memory pages allocated.
    pub page_allocations: u64,
    /// Time with block requests in flight, nanoseconds.
    pub block_io_ns: u64,
}

/// Loss of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Time of detection, nanoseconds.
    pub ts_ns: u64,
    /// Number of lost events, as far as the source could count.
    pub events: u64,
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Time, nanoseconds.
    pub ts_ns: u64,
    /// The process.
    pub pid: u32,
    /// How it ended; `None` if the source did not see that.
    pub exit: Option<Exit>,
}

/// Kernel launches of one process over a short window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launches {
    /// End of the window, nanoseconds.
    pub ts_ns: u64,
    /// Launching process.
    pub pid: u32,
    /// Number of launches.
    pub n: u64,
}

/// Context switch: one thread left a CPU and another one got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextSwitch {
    /// Time, nanoseconds.
    pub ts_ns: u64,
    /// Thread that left.
    pub prev_tid: u32,
    /// Reason for leaving.
    pub reason: SwitchReason,
    /// Thread that got the CPU.
    pub next_tid: u32,
}

/// Reason why a thread left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchReason {
    /// Preempted by another thread while runnable.
    Preempted,
    /// Blocked on a lock, a timer or a device.
    Blocked,
    /// Exited.
    Exited,
}

/// Call into a library of the GPU stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Entry of the call, nanoseconds.
    pub ts_ns: u64,
    /// Duration until the return, nanoseconds.
    pub dur_ns: u64,
    /// Calling process.
    pub pid: u32,
    /// Calling thread.
    pub tid: u32,
    /// Function called.
    pub kind: CallKind,
}

impl Call {
    /// Time of the return, nanoseconds.
    pub fn return_ns(&self) -> u64 {
        self.ts_ns.saturating_add(self.dur_ns)
    }
}

/// Kind of a library call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// Operation on a communicator.
    Operation(Operation),
    /// Rank joining a communicator.
    CommInit(CommInit),
    /// Rank leaving a communicator.
    CommDestroy {
        /// Pointer of the communicator, where the source knows it.
        comm: Option<u64>,
    },
    /// Host waiting for the GPU.
    Synchronize,
    /// Memory copy.
    MemoryCopy(MemoryCopy),
    /// Call that is not evaluated.
    Other,
}

/// Memory copy requested by a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryCopy {
    /// Bytes.
    pub bytes: u64,
    /// Direction, as far as the call specifies it.
    pub direction: Direction,
}

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Host to device.
    ToDevice,
    /// Device to host.
    ToHost,
    /// Within the device, or from one to another.
    WithinDevice,
    /// Not specified: the library determines it.
    Unspecified,
}

impl Direction {
    /// Converts a `cudaMemcpyKind`; HIP uses the same numbers.
    pub fn from_cuda_kind(kind: u32) -> Self {
        match kind {
            1 => Self::ToDevice,
            2 => Self::ToHost,
            3 => Self::WithinDevice,
            _ => Self::Unspecified,
        }
    }
}

/// Traced process and its rank in the job, from its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Rank within the job.
    pub rank: u32,
    /// Number of ranks of the job.
    pub world_size: u32,
}
