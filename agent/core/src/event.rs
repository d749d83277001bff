//! Plain events of traced processes, as every source yields them. Times are nanoseconds of the
//! source's monotonic clock.

mod gpu;

pub use crate::event::gpu::{CommState, GpuOperation, GpuSpan};

/// Something that a source saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A process is traced from now on. A recording names its processes in its header instead.
    Started(Box<Started>),
    /// A library call, stamped at its entry.
    Call(Call),
    /// A library call that has not returned yet, stamped at its entry. Only a source that watches knows of one.
    Entered(Entered),
    /// The return of a call whose entry was told before, stamped at the return.
    Returned(Call),
    /// Kernel launches of one process, counted over a short window.
    Launches(Launches),
    /// The scheduler put another thread on a CPU.
    ContextSwitch(ContextSwitch),
    /// What a process did on its host, summed up by the source.
    Activity(ActivitySample),
    /// An operation ran on a GPU, stamped at its end.
    GpuOperation(GpuOperation),
    /// A communicator older than the agent was read, stamped at the end of reading.
    CommState(CommState),
    /// Events of any process may be missing since the last one of this kind or the beginning.
    Lost(Lost),
    /// A process ended; nothing of it follows.
    Ended(Ended),
}

impl Event {
    /// When the event is stamped, nanoseconds.
    pub fn ts_ns(&self) -> u64 {
        match self {
            Self::Started(started) => started.ts_ns,
            Self::Call(call) => call.ts_ns,
            Self::Entered(entered) => entered.ts_ns,
            Self::Returned(call) => call.return_ns(),
            Self::Launches(launches) => launches.ts_ns,
            Self::ContextSwitch(switch) => switch.ts_ns,
            Self::Activity(measured) => measured.ts_ns,
            Self::GpuOperation(operation) => operation.ts_ns,
            Self::CommState(state) => state.ts_ns,
            Self::Lost(lost) => lost.ts_ns,
            Self::Ended(ended) => ended.ts_ns,
        }
    }
}

impl Event {
    /// The process that it is about; none when it is about the host.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Started(started) => Some(started.process.pid),
            Self::Call(call) | Self::Returned(call) => Some(call.pid),
            Self::Entered(entered) => Some(entered.pid),
            Self::Launches(launches) => Some(launches.pid),
            Self::Activity(measured) => Some(measured.pid),
            Self::GpuOperation(operation) => Some(operation.pid),
            Self::CommState(state) => Some(state.pid),
            Self::Ended(ended) => Some(ended.pid),
            Self::ContextSwitch(_) | Self::Lost(_) => None,
        }
    }
}

/// A process that is traced from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Since when, nanoseconds.
    pub ts_ns: u64,
    /// The process and its rank.
    pub process: Process,
    /// What its points are labelled with.
    pub labels: Labels,
}

/// What the points of a process are labelled with, besides its rank; none where nobody knows.
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

/// A library call that has not returned yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entered {
    /// Entry of the call, nanoseconds.
    pub ts_ns: u64,
    /// Process that called.
    pub pid: u32,
    /// Thread that called.
    pub tid: u32,
    /// What was called.
    pub kind: CallKind,
}

/// What a process did on its host over a short window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivitySample {
    /// End of the window, nanoseconds.
    pub ts_ns: u64,
    /// The process.
    pub pid: u32,
    /// What it did.
    pub activity: Activity,
}

/// What a process did over some time; none where the source cannot see it. Times are sums over its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// What threads did on and off their CPUs.
    pub threads: Option<OffCpuTime>,
    /// Bytes copied between host and device.
    pub memcpy_bytes: Option<CopiedBytes>,
    /// Kernel launches.
    pub launches: Option<u64>,
    /// Launches of CUDA graphs.
    pub graph_launches: Option<u64>,
    /// What the kernel's memory and disks did for it.
    pub kernel: Option<KernelWork>,
    /// TCP segments that its host sent again.
    pub tcp_retransmits: Option<u64>,
    /// Time that its GPU's clocks were held down, nanoseconds.
    pub throttled_ns: Option<u64>,
    /// RDMA packets that its host lost or sent again, and errors that the devices told the process of.
    pub rdma_errors: Option<u64>,
}

/// Time that threads did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffCpuTime {
    /// Blocked, other than in a synchronisation with the GPU, nanoseconds.
    pub off_cpu_ns: u64,
    /// Runnable after a wake-up, but without a CPU yet, nanoseconds; none when the source does not see wake-ups.
    pub run_queue_ns: Option<u64>,
    /// Runnable, but preempted, nanoseconds.
    pub preempted_ns: u64,
    /// Number of preemptions.
    pub preemptions: u64,
}

/// Bytes copied, by direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopiedBytes {
    /// From the host to the device.
    pub to_device: u64,
    /// From the device to the host.
    pub to_host: u64,
    /// With one end on the host, in a direction that the call does not name.
    pub unspecified: u64,
}

/// What the kernel did for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelWork {
    /// Memory pages allocated.
    pub page_allocations: u64,
    /// Block requests under way, nanoseconds.
    pub block_io_ns: u64,
}

/// Events may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// When that was found, nanoseconds.
    pub ts_ns: u64,
    /// How many, as far as the source could count.
    pub events: u64,
}

/// A process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When, nanoseconds.
    pub ts_ns: u64,
    /// The process.
    pub pid: u32,
}

/// Kernel launches of one process over a short window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launches {
    /// End of the window, nanoseconds.
    pub ts_ns: u64,
    /// Process that launched.
    pub pid: u32,
    /// Number of launches.
    pub n: u64,
}

/// One thread left a CPU and another one got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextSwitch {
    /// When, nanoseconds.
    pub ts_ns: u64,
    /// Thread that left.
    pub prev_tid: u32,
    /// Why it left.
    pub reason: SwitchReason,
    /// Thread that got the CPU.
    pub next_tid: u32,
}

/// Why a thread left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchReason {
    /// Another thread was to run; this one could have gone on.
    Preempted,
    /// It waits for something: a lock, a timer, a device.
    Blocked,
    /// It has ended.
    Exited,
}

/// One call into a library of the GPU stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Entry of the call, nanoseconds.
    pub ts_ns: u64,
    /// Time until it returned, nanoseconds.
    pub dur_ns: u64,
    /// Process that called.
    pub pid: u32,
    /// Thread that called.
    pub tid: u32,
    /// What was called.
    pub kind: CallKind,
}

impl Call {
    /// When the call returned, nanoseconds.
    pub fn return_ns(&self) -> u64 {
        self.ts_ns.saturating_add(self.dur_ns)
    }
}

/// What a library call was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// An operation on a communicator.
    Operation(Operation),
    /// A rank joined a communicator.
    CommInit(CommInit),
    /// A rank left a communicator.
    CommDestroy {
        /// The communicator's pointer, where the source knows it.
        comm: Option<u64>,
    },
    /// The host waited for the GPU.
    Synchronize,
    /// Memory was copied.
    MemoryCopy(MemoryCopy),
    /// A call that nothing is derived from.
    Other,
}

/// A copy that a process asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryCopy {
    /// Bytes.
    pub bytes: u64,
    /// Where to, as far as the call tells.
    pub direction: Direction,
}

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the device.
    ToDevice,
    /// From the device to the host.
    ToHost,
    /// Within the device, or from one to another.
    WithinDevice,
    /// The library finds out by itself.
    Unspecified,
}

impl Direction {
    /// Reads a `cudaMemcpyKind`, which HIP numbers alike.
    pub fn from_cuda_kind(kind: u32) -> Self {
        match kind {
            1 => Self::ToDevice,
            2 => Self::ToHost,
            3 => Self::WithinDevice,
            _ => Self::Unspecified,
        }
    }
}

/// One operation put on a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Which operation.
    pub op: Op,
    /// Elements per rank.
    pub count: u64,
    /// Element type, numbered as NCCL does.
    pub datatype: u32,
    /// The communicator's pointer in the calling process.
    pub comm: u64,
    /// Its number among the communicator's operations, where the source counts; else they are counted here.
    pub seq: Option<u64>,
    /// The other rank of a transfer between two.
    pub peer: Option<u32>,
}

/// A rank's entry into a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommInit {
    /// Ranks of the communicator.
    pub nranks: u32,
    /// The caller's rank within it.
    pub rank: u32,
    /// Hash of the unique id, equal on all its ranks.
    pub unique_id: u64,
    /// The pointer that it got, where the source knows it.
    pub comm: Option<u64>,
}

/// Operations of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Reduction that every rank receives.
    AllReduce,
    /// Concatenation that every rank receives.
    AllGather,
    /// Reduction of which every rank receives its part.
    ReduceScatter,
    /// One rank's data for all.
    Broadcast,
    /// Reduction that one rank receives.
    Reduce,
    /// Every rank's data for every rank.
    AllToAll,
    /// Concatenation that one rank receives.
    Gather,
    /// Parts of one rank's data for all.
    Scatter,
    /// Half of a transfer between two ranks.
    Send,
    /// The other half.
    Recv,
}

impl Op {
    /// NCCL's name without the prefix.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "AllReduce",
            Self::AllGather => "AllGather",
            Self::ReduceScatter => "ReduceScatter",
            Self::Broadcast => "Broadcast",
            Self::Reduce => "Reduce",
            Self::AllToAll => "AlltoAll",
            Self::Gather => "Gather",
            Self::Scatter => "Scatter",
            Self::Send => "Send",
            Self::Recv => "Recv",
        }
    }

    /// Whether all ranks of the communicator take part, so that the operation has a sequence number.
    pub fn is_collective(self) -> bool {
        !matches!(self, Self::Send | Self::Recv)
    }
}

/// A traced process and its place in the job, as its environment tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Rank within the job.
    pub rank: u32,
    /// Ranks of the job.
    pub world_size: u32,
}
