//! Causes for which a process loses time on its host.

use std::fmt;

use crate::event::BlockReason;

/// Share from which a loss is a fault though the peers, or the past, lose as much.
const FLOOR_OF_ALL: f64 = 0.2;

/// Functions that allocate or free GPU memory, by the beginnings of their names.
const MEMORY: [&str; 8] = [
    "cudaMalloc",
    "cudaFree",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemCreate",
    "cuMemMap",
    "hipMalloc",
    "hipFree",
];
/// Functions that make a CUDA graph before it can be launched.
const GRAPH_CREATION: [&str; 7] = [
    "cudaStreamBeginCapture",
    "cudaStreamEndCapture",
    "cudaGraphInstantiate",
    "cuStreamBeginCapture",
    "cuStreamEndCapture",
    "cuGraphInstantiate",
    "hipGraphInstantiate",
];
/// Functions that copy GPU memory. By default their durations are not measured.
const COPY: &str = "Memcpy";
/// Functions whose duration is a wait for the GPU or for other ranks, or that are called once.
const WAITS: [&str; 3] = ["Synchronize", "CommInit", "CommDestroy"];

/// Cause for which a process loses time. The time is that of its own threads, so that cause and
/// wait cannot merely coincide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Other tasks had the CPU while a thread was runnable.
    CpuContention,
    /// The cgroup of the process had used up its CPU quota.
    CgroupThrottling,
    /// Interrupts ran on the CPU of a running thread.
    Interrupts,
    /// Other processes computed on its GPU.
    GpuSharing,
    /// Waited for a lock or a condition of another thread.
    Lock,
    /// Waited for a block device.
    BlockIo,
    /// Waited for memory pages.
    PageFaults,
    /// Waited for a socket.
    Network,
    /// Waited for another process at a pipe.
    Pipe,
    /// Slept.
    Sleep,
    /// Allocated or freed GPU memory.
    MemoryAllocation,
    /// Captured and instantiated CUDA graphs.
    GraphCreation,
    /// Some calls of a function took far longer than its median.
    SlowCalls,
    /// Was in copies of GPU memory, or waited in them for the GPU, longer than before.
    Copies,
    /// Ran its own program longer between two calls than before.
    OwnProgram,
    /// Was at a line of its own program more often than its peers.
    OwnCode,
}

impl Cause {
    /// Causes whose time is measured by itself: that of [`Cause::OwnProgram`] and [`Cause::Copies`] is what is left,
    /// and that of [`Cause::OwnCode`] is sampled.
    pub(super) const MEASURED: [Self; 13] = [
        Self::CpuContention,
        Self::CgroupThrottling,
        Self::Interrupts,
        Self::GpuSharing,
        Self::Lock,
        Self::BlockIo,
        Self::PageFaults,
        Self::Network,
        Self::Pipe,
        Self::Sleep,
        Self::MemoryAllocation,
        Self::GraphCreation,
        Self::SlowCalls,
    ];

    /// Returns its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpuContention => "cpu_contention",
            Self::CgroupThrottling => "cgroup_throttling",
            Self::Interrupts => "interrupts",
            Self::GpuSharing => "gpu_sharing",
            Self::Lock => "lock",
            Self::BlockIo => "block_io",
            Self::PageFaults => "page_faults",
            Self::Network => "network",
            Self::Pipe => "pipe",
            Self::Sleep => "sleep",
            Self::MemoryAllocation => "memory_allocation",
            Self::GraphCreation => "graph_creation",
            Self::SlowCalls => "slow_calls",
            Self::Copies => "copies",
            Self::OwnProgram => "own_program",
            Self::OwnCode => "own_code",
        }
    }

    /// Returns whether healthy processes spend time on it, so that an amount says nothing without
    /// one to compare it with.
    pub(super) const fn is_usual(self) -> bool {
        self.block_reason().is_some() && !matches!(self, Self::PageFaults)
    }

    /// Returns whether no healthy process loses this share of its time to it, whatever its peers lose: a
    /// whole host can be short of CPU. Ranks of some jobs share a GPU on purpose.
    pub(super) fn is_fault(self, share: f64) -> bool {
        let is_never_healthy = matches!(
            self,
            Self::CpuContention | Self::CgroupThrottling | Self::Interrupts | Self::PageFaults
        );
        is_never_healthy && share >= FLOOR_OF_ALL
    }

    /// Returns whether it is a kind of GPU library calls.
    pub(super) const fn is_call(self) -> bool {
        matches!(
            self,
            Self::MemoryAllocation | Self::GraphCreation | Self::SlowCalls | Self::Copies
        )
    }

    /// Returns whether the process may wait for its worker processes.
    pub(super) const fn may_wait_for_workers(self) -> bool {
        matches!(self, Self::Lock | Self::Network | Self::Pipe)
    }

    /// Returns the reason of blocking that it stands for.
    pub(super) const fn block_reason(self) -> Option<BlockReason> {
        Some(match self {
            Self::Lock => BlockReason::Lock,
            Self::BlockIo => BlockReason::BlockIo,
            Self::PageFaults => BlockReason::PageFault,
            Self::Network => BlockReason::Network,
            Self::Pipe => BlockReason::Pipe,
            Self::Sleep => BlockReason::Sleep,
            _ => return None,
        })
    }

    /// Returns whether it is a kind of calls to which a function belongs.
    pub fn has_function(self, function: &str) -> bool {
        let is_one_of = |names: &[&str]| {
            names
                .iter()
                .any(|beginning| function.starts_with(beginning))
        };
        match self {
            Self::MemoryAllocation => is_one_of(&MEMORY),
            Self::GraphCreation => is_one_of(&GRAPH_CREATION),
            Self::Copies => function.contains(COPY),
            Self::SlowCalls => {
                !is_one_of(&MEMORY) && !is_one_of(&GRAPH_CREATION) && !Self::waits(function)
            }
            _ => false,
        }
    }

    /// Returns whether calls of a function wait for the GPU or for other ranks.
    pub(super) fn waits(function: &str) -> bool {
        WAITS.iter().any(|part| function.contains(part))
    }
}

impl fmt::Display for Cause {
    /// Writes the cause as part of a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CpuContention => "runnable without a CPU",
            Self::CgroupThrottling => "throttled at the CPU quota of its cgroup",
            Self::Interrupts => "interrupted on its CPU",
            Self::GpuSharing => "beside other processes that compute on its GPU",
            Self::Lock => "waiting for a lock or condition of another thread",
            Self::BlockIo => "waiting for a block device",
            Self::PageFaults => "waiting for memory pages",
            Self::Network => "waiting for a socket",
            Self::Pipe => "waiting at a pipe for another process",
            Self::Sleep => "sleeping",
            Self::MemoryAllocation => "allocating and freeing GPU memory",
            Self::GraphCreation => "capturing and instantiating CUDA graphs",
            Self::SlowCalls => "in calls far slower than their median",
            Self::Copies => {
                "in copies of GPU memory, or waiting in them for the GPU, longer than before"
            }
            Self::OwnProgram => "running its own program longer than before",
            Self::OwnCode => "at one line of its program",
        })
    }
}
