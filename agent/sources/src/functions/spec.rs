//! Properties of a function: library family, probe condition, effect.

use fleet_agent_core::event::Op;

/// Library family of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// NCCL or RCCL, as a separate library or embedded in another one.
    Collectives,
    /// CUDA or HIP runtime.
    Runtime,
    /// CUDA driver, for programs with an embedded runtime.
    Driver,
    /// libibverbs, through which NCCL uses the network.
    Verbs,
    /// Echo's own plugin for NCCL's profiler.
    Profiler,
}

/// Condition for probing a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeWhen {
    /// Always.
    Always,
    /// If copies are counted.
    Copies,
    /// If kernel launches are counted.
    Launches,
    /// On kernels that turn a long `nop` into a call.
    FastNop,
    /// On other kernels.
    SlowNop,
}

/// Effect of a call of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Issues an operation on a communicator.
    Operation(Op),
    /// Creates a communicator.
    MakesComm,
    /// Creates a communicator out of another one.
    SplitsComm,
    /// Destroys a communicator.
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
    /// Acknowledges an asynchronous event of an RDMA device.
    AcknowledgesEvent,
    /// Passes a record of an operation that ran on a GPU.
    Records,
}
