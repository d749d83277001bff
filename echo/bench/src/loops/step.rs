//! What one rank does in a step, in the order of its program.

/// A collective's function, by NCCL's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `ncclAllReduce`.
    AllReduce,
    /// `ncclAllGather`.
    AllGather,
    /// `ncclReduceScatter`.
    ReduceScatter,
    /// `ncclBroadcast`.
    Broadcast,
    /// `ncclSend`.
    Send,
    /// `ncclRecv`.
    Recv,
}

impl Function {
    /// NCCL's name, without its prefix.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "AllReduce",
            Self::AllGather => "AllGather",
            Self::ReduceScatter => "ReduceScatter",
            Self::Broadcast => "Broadcast",
            Self::Send => "Send",
            Self::Recv => "Recv",
        }
    }
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operation {
    /// What it does.
    pub function: Function,
    /// Elements of four bytes.
    pub count: u64,
    /// The other rank of a send or receive.
    pub peer: u32,
    /// Time for the transfer once all are there, milliseconds.
    pub transfer_ms: f64,
}

/// What a rank does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The host works, milliseconds.
    Host(f64),
    /// The host loads a batch, milliseconds.
    Load(f64),
    /// The GPU gets work, milliseconds.
    Kernel(f64),
    /// Operations that start together on the stream of communication, behind the kernels so far where these have to be over.
    Exchange {
        /// Which.
        ops: Vec<Operation>,
        /// Whether they read what the kernels so far wrote.
        after_kernels: bool,
    },
    /// Kernels from here on need the operations so far.
    Join,
    /// The host blocks until its GPU is idle.
    Synchronize,
    /// The end of the step is marked on the GPU.
    MarkStep,
    /// The host blocks until the mark of this many steps ago is reached.
    AwaitStep(usize),
    /// A graph is launched.
    LaunchGraph,
}
