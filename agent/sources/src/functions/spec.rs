//! What is said of a function: where it is found, when it is probed, what it does.

use fleet_agent_core::event::Op;

/// Which kind of library a function belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// NCCL or RCCL, in a library of its own or inside another one.
    Collectives,
    /// The CUDA or HIP runtime.
    Runtime,
    /// The CUDA driver, for programs that have the runtime built in.
    Driver,
    /// libibverbs, through which NCCL uses the network.
    Verbs,
    /// Echo's own plugin for NCCL's profiler.
    Profiler,
}

/// When a function is probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeWhen {
    /// Always.
    Always,
    /// When copies are to be counted.
    Copies,
    /// When kernel launches are to be counted.
    Launches,
    /// On kernels that turn a long `nop` into a call.
    FastNop,
    /// On other kernels.
    SlowNop,
}

/// What a function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Puts an operation on a communicator.
    Operation(Op),
    /// Makes a communicator.
    MakesComm,
    /// Makes a communicator out of another one.
    SplitsComm,
    /// Ends a communicator.
    EndsComm,
    /// Ends a group of operations.
    EndsGroup,
    /// Waits for the GPU.
    Waits,
    /// Copies memory.
    Copies,
    /// Launches a kernel.
    Launches,
    /// Launches a graph of kernels.
    LaunchesGraph,
    /// Acknowledges what an RDMA device has told of its own accord.
    AcknowledgesEvent,
    /// Tells of an operation that ran on a GPU.
    Records,
}
