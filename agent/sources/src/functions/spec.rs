//! Properties of a function: library family, probe condition, effect.

use fleet_agent_bpf::layout::{ArgumentIndexes, Cookie, flag};
use fleet_agent_core::event::{Direction, Op};

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
    /// If copies are counted or measured.
    Copies,
    /// If copies are measured: another listed function may call it, which only a probe of its
    /// return can tell.
    MeasuredCopies,
    /// If kernel launches are counted or measured.
    Launches,
    /// If kernel launches are measured.
    MeasuredLaunches,
    /// Always; its return only if kernel launches are measured.
    GraphLaunches,
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
    /// Allocates memory.
    Allocates,
    /// Frees memory.
    Frees,
    /// Launches a kernel.
    Launches,
    /// Launches a graph of kernels.
    LaunchesGraph,
    /// Changes a graph of kernels.
    ChangesGraph(GraphChange),
    /// Acknowledges an asynchronous event of an RDMA device.
    AcknowledgesEvent,
    /// Passes a record of an operation that ran on a GPU.
    Records,
}

/// Step in the life of a graph of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GraphChange {
    /// Begins to record the calls of a stream.
    BeginCapture,
    /// Ends recording.
    EndCapture,
    /// Creates an executable graph.
    Instantiate,
    /// Updates an executable graph in place.
    Update,
    /// Destroys an executable graph.
    Destroy,
}

/// Function of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Symbol name.
    pub name: &'static str,
    /// Library family.
    pub family: Family,
    /// Condition for probing it.
    pub probe_when: ProbeWhen,
    /// Effect of a call.
    pub effect: Effect,
    /// Direction of its copies, if it has only one.
    pub(super) one_way: Option<Direction>,
    pub(super) flags: u16,
    pub(super) arguments: ArgumentIndexes,
}

impl Function {
    /// Returns whether it is called so often that a slow probe would be noticeable.
    pub fn is_hot(&self) -> bool {
        !matches!(
            self.effect,
            Effect::MakesComm
                | Effect::SplitsComm
                | Effect::EndsComm
                | Effect::ChangesGraph(_)
                | Effect::AcknowledgesEvent
                // Consists of an instruction that suits the kernel.
                | Effect::Records
        )
    }

    /// Returns whether its return is probed.
    pub fn returns(&self) -> bool {
        self.flags & flag::COUNTS == 0
    }

    /// Returns the function with its return probed, so that its calls are measured and not only
    /// counted.
    #[must_use]
    pub fn measured(mut self) -> Self {
        if !self.returns() {
            self.flags = self.flags & !flag::COUNTS | flag::QUIET | flag::RUNTIME;
        }
        self
    }

    /// Returns the direction of a copy from its argument `kind`; `None` for functions that do not
    /// copy.
    pub fn direction(&self, kind: u8) -> Option<Direction> {
        let from_kind = || Direction::from_cuda_kind(kind.into());
        (self.effect == Effect::Copies).then(|| self.one_way.unwrap_or_else(from_kind))
    }

    /// Returns its cookie as function number `op` of the table.
    pub fn cookie(&self, op: u8) -> Cookie {
        Cookie::new(op, self.class(), self.flags, self.arguments)
    }

    // The newer variants of a function call the older one or vice versa, and a runtime calls the
    // driver: one class, so that only the outer call is reported. Functions that are only counted
    // are counted wherever they are called.
    fn class(&self) -> u8 {
        match self.effect {
            Effect::Operation(op) => 32 + op as u8,
            Effect::MakesComm | Effect::SplitsComm => 1,
            Effect::EndsComm => 2,
            Effect::EndsGroup => 3,
            Effect::Waits => 4,
            Effect::Copies => 5,
            Effect::Launches => 6,
            Effect::LaunchesGraph => 7,
            Effect::Allocates => 8,
            Effect::Frees => 9,
            Effect::ChangesGraph(_) => 10,
            Effect::AcknowledgesEvent | Effect::Records => 11,
        }
    }
}
