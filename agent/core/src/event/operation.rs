//! Operations of communicators.

/// Operation issued on a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Kind of operation.
    pub op: Op,
    /// Elements per rank.
    pub count: u64,
    /// Element type, in NCCL's numbering.
    pub datatype: u32,
    /// Pointer of the communicator in the calling process.
    pub comm: u64,
    /// Sequence number on its communicator, where the source counts; otherwise assigned here.
    pub seq: Option<u64>,
    /// Peer rank of a point-to-point transfer.
    pub peer: Option<u32>,
}

/// Initialization of a communicator by one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommInit {
    /// Number of ranks of the communicator.
    pub nranks: u32,
    /// The caller's rank within it.
    pub rank: u32,
    /// Hash of the unique id, equal on all ranks.
    pub unique_id: u64,
    /// Pointer of the new communicator, where the source knows it.
    pub comm: Option<u64>,
}

/// Operations of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Reduction received by every rank.
    AllReduce,
    /// Concatenation received by every rank.
    AllGather,
    /// Reduction of which every rank receives one part.
    ReduceScatter,
    /// Data of one rank sent to all.
    Broadcast,
    /// Reduction received by one rank.
    Reduce,
    /// Data of every rank sent to every rank.
    AllToAll,
    /// Concatenation received by one rank.
    Gather,
    /// Parts of one rank's data sent to all ranks.
    Scatter,
    /// Sending half of a point-to-point transfer.
    Send,
    /// Receiving half.
    Recv,
}

impl Op {
    /// Name in NCCL without the prefix.
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

    /// Returns whether every rank that takes part waits for every other one, so that the last to
    /// arrive is in the operation for the shortest time. In the others, the root or all but the root
    /// need not wait.
    pub fn waits_for_all(self) -> bool {
        match self {
            Self::AllReduce
            | Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Send
            | Self::Recv => true,
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter => false,
        }
    }

    /// Returns whether all ranks of the communicator take part, so that the operation has a
    /// sequence number.
    pub fn is_collective(self) -> bool {
        !matches!(self, Self::Send | Self::Recv)
    }
}
