//! Actions of one rank in a step, in program order.

/// Communication function, as NCCL names it.
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
    /// Function.
    pub function: Function,
    /// Elements of four bytes.
    pub count: u64,
    /// The other rank of a send or receive.
    pub peer: u32,
    /// Duration of the transfer after the last rank has arrived, milliseconds.
    pub transfer_ms: f64,
}

/// One action of a rank.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The host works for this many milliseconds.
    Host(f64),
    /// The host loads a batch for this many milliseconds.
    Load(f64),
    /// The host enqueues a kernel of this many milliseconds.
    Kernel(f64),
    /// Operations that start together on the communication stream.
    Exchange {
        /// Operations.
        ops: Vec<Operation>,
        /// True when they start after the kernels enqueued so far.
        after_kernels: bool,
    },
    /// Later kernels start after the operations enqueued so far.
    Join,
    /// The host blocks until its GPU is idle.
    Synchronize,
    /// The end of the step is marked on the GPU.
    MarkStep,
    /// The host blocks until the GPU reaches the mark of this many steps ago.
    AwaitStep(usize),
    /// The host launches a CUDA graph.
    LaunchGraph,
}
