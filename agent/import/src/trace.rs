//! Collective operations of one rank, as every reader yields them.

use std::collections::BTreeMap;

use fleet_agent_core::event::Op;

/// Maximum number of names of kernels of which nothing tells how they communicate.
const MAX_UNCLEAR: usize = 32;

/// Operations of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankTrace {
    /// Rank in the job; `None` if neither content nor file name tell.
    pub rank: Option<u32>,
    /// Number of ranks of the job, if known.
    pub world_size: Option<u32>,
    /// Node, if known.
    pub node: Option<String>,
    /// Model of the GPU, if known.
    pub gpu_model: Option<String>,
    /// Ranks of each group, as far as they are known.
    pub groups: BTreeMap<String, Vec<u32>>,
    /// Collective operations with a duration.
    pub collectives: Vec<Collective>,
    /// Number of other operations between GPUs, which no peer can be compared by.
    pub n_transfers: u64,
    /// Time of kernels that compute, nanoseconds; `None` if the format has no such kernels.
    pub busy_ns: Option<u64>,
    /// Number of marked steps.
    pub n_steps: u64,
    /// Number of collectives whose operation is assumed, because nothing tells it.
    pub n_assumed: u64,
    /// Kernels that seem to communicate, and of which nothing tells how: number and time in nanoseconds by
    /// name.
    pub unclear: BTreeMap<String, (u64, u64)>,
    /// Number of events of a damaged file that could not be read.
    pub n_unread: u64,
}

impl RankTrace {
    /// First start and last end of its collectives by the clock of the rank, nanoseconds.
    pub(crate) fn span_ns(&self) -> Option<(u64, u64)> {
        let starts = self.collectives.iter().filter_map(|one| one.start_ns);
        let ends = self.collectives.iter().filter_map(Collective::end_ns);
        starts.min().zip(ends.max())
    }

    /// Counts a kernel that does not name its operation, and returns the operation that is assumed. Such
    /// kernels of the ranks are compared in the order of their streams.
    pub(crate) fn assumed_op(&mut self) -> Op {
        self.n_assumed += 1;
        Op::AllReduce
    }

    /// Counts a kernel that seems to communicate.
    pub(crate) fn add_unclear(&mut self, name: &str, duration_ns: u64) {
        let is_listed = self.unclear.len() < MAX_UNCLEAR || self.unclear.contains_key(name);
        let name = if is_listed { name } else { "others" };
        let (n, ns) = self.unclear.entry(name.to_owned()).or_default();
        *n += 1;
        *ns = ns.saturating_add(duration_ns);
    }

    /// Number of ranks of the job as far as the content tells: of the job, or in its groups.
    pub(crate) fn n_declared_ranks(&self) -> Option<u32> {
        let last = self.groups.values().flatten().max();
        let grouped = last.map(|last| last.saturating_add(1));
        self.world_size.max(grouped)
    }
}

/// Collective operation on the GPU of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collective {
    /// Name of the group.
    pub group: String,
    /// Number in the group; `None` if it follows from the order.
    pub seq: Option<u64>,
    /// Kind of operation.
    pub op: Op,
    /// Size, in elements or bytes of the format.
    pub size: u64,
    /// Start by the clock of the rank, nanoseconds; `None` if the format has none.
    pub start_ns: Option<u64>,
    /// Time on the GPU, nanoseconds.
    pub duration_ns: u64,
}

impl Collective {
    /// End by the clock of the rank, nanoseconds.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        let start_ns = self.start_ns?;
        Some(start_ns.saturating_add(self.duration_ns))
    }
}

/// Parses the name of an operation, as frameworks, NCCL and kernels write it; `None` for transfers
/// and for what is not an operation of all ranks.
pub(crate) fn parse_op(name: &str) -> Option<Op> {
    let letters = name.chars().filter(char::is_ascii_alphabetic);
    let plain: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    // Longer names first: a reduce-scatter contains the names of two others.
    let known = [
        ("allreduce", Op::AllReduce),
        ("allgather", Op::AllGather),
        ("reducescatter", Op::ReduceScatter),
        ("alltoall", Op::AllToAll),
        ("broadcast", Op::Broadcast),
        ("reduce", Op::Reduce),
        ("scatter", Op::Scatter),
        ("gather", Op::Gather),
    ];
    let found = known.iter().find(|(part, _)| plain.contains(part));
    found.map(|(_, op)| *op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_frameworks_kernels_and_nccl_are_one_operation() {
        for (name, op) in [
            ("_allgather_base", Some(Op::AllGather)),
            ("all_gather_into_tensor_coalesced", Some(Op::AllGather)),
            ("_reduce_scatter_base", Some(Op::ReduceScatter)),
            (
                "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
                Some(Op::ReduceScatter),
            ),
            (
                "ncclKernel_AllReduce_RING_LL_Sum_float",
                Some(Op::AllReduce),
            ),
            ("all_to_allv", Some(Op::AllToAll)),
            ("AllReduce", Some(Op::AllReduce)),
            ("broadcast", Some(Op::Broadcast)),
            ("ncclDevKernel_SendRecv", None),
            ("send", None),
        ] {
            assert_eq!(parse_op(name), op, "{name}");
        }
    }
}
