//! Names of GPU kernels that communicate.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use fleet_agent_core::event::Op;
use memchr::memmem;

use crate::trace::parse_op;

/// Beginnings of the names of NCCL's and RCCL's kernels: since 2.19 and before, and those on symmetric
/// memory since 2.28 and in 2.27.
const NCCL: [&str; 4] = [
    "ncclDevKernel",
    "ncclKernel",
    "ncclSymkDevKernel",
    "ncclSymDevKernel",
];

/// Parts of the names of other kernels in which ranks wait for each other, with their operation; small
/// and large letters count alike. vLLM, `PyTorch`, TensorRT-LLM and `FlashInfer` write all-reduces of
/// their own, with one or two exchanges; vLLM's are named after the devices. `DeepEP` sends the tokens of
/// a mixture of experts to their experts, and their results back.
const OTHERS: [(&str, Op); 14] = [
    ("all_reduce", Op::AllReduce),
    ("allreduce", Op::AllReduce),
    ("cross_device_reduce", Op::AllReduce),
    ("all_gather", Op::AllGather),
    ("allgather", Op::AllGather),
    ("reduce_scatter", Op::ReduceScatter),
    ("reducescatter", Op::ReduceScatter),
    ("all_to_all", Op::AllToAll),
    ("alltoall", Op::AllToAll),
    ("intranode::dispatch", Op::AllToAll),
    ("intranode::combine", Op::AllToAll),
    ("internode::dispatch", Op::AllToAll),
    ("internode::combine", Op::AllToAll),
    ("internode_ll::", Op::AllToAll),
];

/// Parts of the names of all kernels that communicate; small and large letters count alike.
pub(crate) fn name_parts() -> impl Iterator<Item = &'static str> {
    HINTS.into_iter().chain(OTHERS.map(|(name, _)| name))
}

/// Parts of the names of kernels that communicate in a way that no other part of the name tells; small and
/// large letters count alike.
const HINTS: [&str; 6] = [
    "nccl", "rccl", "nvshmem", "rocshmem", "multimem", "symm_mem",
];

static OTHER_NAMES: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let names = OTHERS.map(|(name, _)| name);
    let mut builder = AhoCorasick::builder();
    builder.ascii_case_insensitive(true).build(names).ok()
});

static HINT_NAMES: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let mut builder = AhoCorasick::builder();
    builder.ascii_case_insensitive(true).build(HINTS).ok()
});

/// Returns whether text that is no valid event may be the kernel of a collective.
pub(crate) fn may_be_collective(event: &[u8]) -> bool {
    let text = event.to_ascii_lowercase();
    let has = |part: &[u8]| memmem::find(&text, part).is_some();
    let is_other = OTHER_NAMES
        .as_ref()
        .is_some_and(|names| names.is_match(&text));
    has(b"kernel") && (has(b"nccl") || is_other)
}

/// What a kernel is to the comparison of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelKind {
    /// It computes.
    Computation,
    /// A transfer, or a collective operation that is made of transfers.
    Transfer,
    /// It communicates; RCCL has one kernel for all operations.
    Generic,
    /// It seems to communicate, and nothing tells how.
    Unclear,
    /// A collective operation.
    Collective(Op),
}

impl KernelKind {
    /// Returns the kind that the name tells.
    pub(crate) fn of(kernel: &str) -> Self {
        let name = short_name(kernel);
        let is_nccl = |begin: &&str| {
            let start = name.get(..begin.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(begin))
        };
        if NCCL.iter().any(is_nccl) {
            let lower = name.to_ascii_lowercase();
            let unknown = if lower.contains("_generic") {
                Self::Generic
            } else if lower.contains("send") || lower.contains("recv") {
                Self::Transfer
            } else {
                Self::Unclear
            };
            return parse_op(name).map_or(unknown, Self::Collective);
        }
        // Compiled kernels that compute are named after what follows them.
        if name.starts_with("triton_") || name.contains("clean_low_latency_buffer") {
            return Self::Computation;
        }
        let found = OTHER_NAMES.as_ref().and_then(|names| names.find(name));
        if let Some((_, op)) = found.and_then(|found| OTHERS.get(found.pattern().as_usize())) {
            return Self::Collective(*op);
        }
        let seems_to_communicate = HINT_NAMES
            .as_ref()
            .is_some_and(|hints| hints.is_match(name));
        if seems_to_communicate {
            Self::Unclear
        } else {
            Self::Computation
        }
    }
}

/// Returns the name of a kernel without the types around it: template arguments of kernels that compute
/// contain words such as `BlockAllReduce`.
pub(crate) fn short_name(kernel: &str) -> &str {
    let named = kernel.trim_start_matches("void ");
    let named = named.trim_start_matches("(anonymous namespace)::");
    named.split(['(', '<']).next().unwrap_or(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_nccl_and_of_others_communicate() {
        use KernelKind::{Collective, Computation, Generic, Transfer, Unclear};
        for (name, kind) in [
            (
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
                Collective(Op::AllReduce),
            ),
            (
                "ncclKernel_AllGather_RING_LL_Sum_int8_t(x)",
                Collective(Op::AllGather),
            ),
            (
                "nccldevkernel_reducescatter_sum_bf16(x)",
                Collective(Op::ReduceScatter),
            ),
            (
                "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(x)",
                Collective(Op::AllReduce),
            ),
            (
                "ncclSymkDevKernel_AllGather_ST(x)",
                Collective(Op::AllGather),
            ),
            ("ncclDevKernel_SendRecv(x)", Transfer),
            ("ncclDevKernel_Generic_1(x)", Generic),
            (
                "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)",
                Collective(Op::AllReduce),
            ),
            (
                "void vllm::cross_device_reduce_1stage<__half, 8>(x)",
                Collective(Op::AllReduce),
            ),
            (
                "void tensorrt_llm::oneShotAllReduceKernel<float>(x)",
                Collective(Op::AllReduce),
            ),
            (
                "void deep_ep::intranode::dispatch<8, 768>(int4*)",
                Collective(Op::AllToAll),
            ),
            ("ncclDevKernel_Barrier(x)", Unclear),
            ("void nvshmemi_transfer_kernel<4>(x)", Unclear),
            ("void softmax<float, BlockAllReduce<float>>(x)", Computation),
            ("ampere_bf16_s16816gemm_bf16_128x64", Computation),
            ("triton_poi_fused_all_reduce_0", Computation),
            ("deep_ep::layout::get_dispatch_layout<256>(x)", Computation),
            ("", Computation),
        ] {
            assert_eq!(KernelKind::of(name), kind, "{name}");
        }
    }
}
