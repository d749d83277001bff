//! Lines as NCCL's Inspector writes them: one JSON object per collective.

use std::io::{self, Write};

use fleet_agent_core::event::Op;
use serde_json::json;

use crate::trace::kernel::{Kernel, kernels};
use crate::trace::kineto::bytes;
use crate::trace::timeline::RankTimeline;

/// Version of the format.
const VERSION: &str = "v4.0";

/// Writes the collectives of all ranks.
pub(super) fn write(output: &mut dyn Write, ranks: &[RankTimeline]) -> io::Result<()> {
    let hosts: std::collections::BTreeSet<usize> = ranks.iter().map(|rank| rank.host).collect();
    for rank in ranks {
        for kernel in kernels(rank) {
            let line = line(rank, &kernel, hosts.len());
            writeln!(output, "{line}")?;
        }
    }
    Ok(())
}

fn line(rank: &RankTimeline, kernel: &Kernel, n_hosts: usize) -> serde_json::Value {
    let size = bytes(kernel.operation.count, kernel.operation.datatype);
    let duration_ns = kernel.end_ns.saturating_sub(kernel.start_ns);
    let algorithm_gbs = rate(size, duration_ns);
    json!({
        "header": {
            "id": format!("0x{:x}", kernel.operation.comm.to_bits()),
            "rank": kernel.operation.comm_rank,
            "n_ranks": kernel.operation.comm_size,
            "nnodes": n_hosts,
        },
        "metadata": {
            "inspector_output_format_version": VERSION,
            "git_rev": "",
            "rec_mechanism": "fleet-agent",
            "dump_timestamp_us": kernel.end_ns / 1000,
            "hostname": format!("host-{}", rank.host),
            "pid": rank.process.pid,
        },
        "coll_perf": {
            "coll": kernel.operation.op.name(),
            "coll_sn": kernel.operation.seq,
            "coll_msg_size_bytes": size,
            "coll_exec_time_us": duration_ns / 1000,
            "coll_timing_source": if kernel.is_device { "kernel_gpu" } else { "collective_cpu" },
            "coll_algobw_gbs": algorithm_gbs,
            "coll_busbw_gbs": algorithm_gbs * bus_factor(kernel.operation.op, kernel.operation.comm_size),
        },
    })
}

/// Bytes per nanosecond, which are gigabytes per second.
#[expect(
    clippy::cast_precision_loss,
    reason = "sizes and durations are far below 2^53"
)]
fn rate(bytes: u64, duration_ns: u64) -> f64 {
    if duration_ns == 0 {
        return 0.0;
    }
    bytes as f64 / duration_ns as f64
}

/// Bus bandwidth as a multiple of the algorithm bandwidth, as nccl-tests define it.
fn bus_factor(op: Op, n_ranks: u32) -> f64 {
    let n = f64::from(n_ranks.max(1));
    match op {
        Op::AllReduce => 2.0 * (n - 1.0) / n,
        Op::AllGather | Op::ReduceScatter | Op::AllToAll | Op::Gather | Op::Scatter => {
            (n - 1.0) / n
        }
        Op::Broadcast | Op::Reduce | Op::Send | Op::Recv => 1.0,
    }
}
