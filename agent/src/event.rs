//! Plain events of traced processes, as every source yields them. Times are nanoseconds of the
//! source's monotonic clock.

/// Something that a source saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A library call, stamped at its entry.
    Call(Call),
    /// Kernel launches of one process, counted over a short window.
    Launches(Launches),
    /// The scheduler put another thread on a CPU.
    ContextSwitch(ContextSwitch),
}

impl Event {
    /// When the event is stamped, nanoseconds.
    pub fn ts_ns(&self) -> u64 {
        match *self {
            Self::Call(call) => call.ts_ns,
            Self::Launches(launches) => launches.ts_ns,
            Self::ContextSwitch(switch) => switch.ts_ns,
        }
    }
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
    pub prev: Left,
    /// Thread that got the CPU.
    pub next_tid: u32,
}

/// Why a thread left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Another thread was to run; this one could have gone on.
    Preempted,
    /// It waits for something: a lock, a timer, a device.
    Blocked,
    /// It has ended.
    Gone,
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
    /// Whether the host's memory is one of its two ends, as far as the call tells.
    pub touches_host: bool,
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
