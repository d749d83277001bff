//! Layout of a job: tensor, pipeline and data parallel ranks, their nodes and communicators.

use std::fmt;

use echo_core::ids::{CommId, RoleId};

/// GPUs of a node.
pub const NODE_SIZE: u32 = 8;

/// Sizes of a mesh. Rank = (dp x PP + pp) x TP + tp, as Megatron counts by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mesh {
    /// Ranks that share every layer.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Replicas.
    pub dp: u32,
}

impl Mesh {
    /// A mesh of these sizes.
    pub const fn new(tp: u32, pp: u32, dp: u32) -> Self {
        Self { tp, pp, dp }
    }

    /// Data parallelism alone.
    pub const fn replicas(dp: u32) -> Self {
        Self::new(1, 1, dp)
    }

    /// Number of ranks.
    pub const fn n_ranks(self) -> u32 {
        self.tp * self.pp * self.dp
    }

    /// Pipeline stage of a rank.
    pub const fn stage(self, rank: u32) -> u32 {
        rank / self.tp % self.pp
    }

    /// Data parallel group of a rank, counted from 0.
    pub const fn group(self, rank: u32) -> u32 {
        rank % (self.tp * self.pp)
    }

    /// Data parallel communicator of a rank.
    pub fn dp_comm(self, rank: u32) -> CommId {
        CommId::new(0x0d00_0000_0000 + u64::from(self.group(rank)))
    }

    /// Tensor parallel communicator of a rank.
    pub fn tp_comm(self, rank: u32) -> CommId {
        CommId::new(0x7e00_0000_0000 + u64::from(rank / self.tp))
    }

    /// Role of a rank: its stage does the same in every replica.
    pub fn role(self, rank: u32) -> RoleId {
        RoleId::new(7 + u64::from(self.stage(rank)))
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.tp, self.pp, self.dp)
    }
}
