//! Trace as the `PyTorch` profiler (Kineto) writes it, one file per rank.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use fleet_agent_core::event::Op;
use fleet_agent_core::signal::CommId;
use serde_json::{Value, json};

use crate::trace::chrome::{ChromeTrace, micros};
use crate::trace::kernel::{Kernel, kernels};
use crate::trace::timeline::{Collective, RankTimeline};

/// Stream on which all kernels are shown.
const STREAM: u32 = 7;

/// Writes the trace of one of these ranks.
pub(super) fn write(
    output: &mut dyn Write,
    rank: &RankTimeline,
    ranks: &[RankTimeline],
) -> io::Result<()> {
    let kernels = kernels(rank);
    let members = members(ranks);
    let groups = groups(&kernels, &members);
    let mut trace = ChromeTrace::begin(output, &header(rank, &groups))?;
    write_names(&mut trace, rank)?;
    let thread = |kernel: &Kernel| kernel.issued.map_or(rank.process.pid, |call| call.call.tid);
    for (number, kernel) in (1_u64..).zip(&kernels) {
        if let Some(Collective { call, .. }) = kernel.issued {
            let name = format!("nccl:{}", torch_name(kernel.operation.op));
            let launch = json!({
                "ph": "X", "cat": "cuda_runtime", "name": name,
                "pid": rank.process.pid, "tid": thread(kernel),
                "ts": micros(call.start_ns),
                "dur": micros(call.end_ns.saturating_sub(call.start_ns)),
                "args": {"correlation": number},
            });
            trace.event(&launch)?;
        }
        trace.event(&kernel_event(rank, kernel, number, &members))?;
    }
    for wait in &rank.waits {
        trace.event(&json!({
            "ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize",
            "pid": rank.process.pid, "tid": wait.tid,
            "ts": micros(wait.start_ns),
            "dur": micros(wait.end_ns.saturating_sub(wait.start_ns)),
            "args": {"correlation": 0},
        }))?;
    }
    trace.end()
}

/// Returns the ranks of each communicator, as far as they were recorded.
fn members(ranks: &[RankTimeline]) -> BTreeMap<CommId, BTreeSet<u32>> {
    let mut members: BTreeMap<CommId, BTreeSet<u32>> = BTreeMap::new();
    for rank in ranks {
        let issued = rank.collectives.iter().map(|own| own.operation.comm);
        let timed = rank.gpu.iter().map(|own| CommId::new(own.comm_id));
        for comm in issued.chain(timed) {
            members.entry(comm).or_default().insert(rank.process.rank);
        }
    }
    members
}

fn groups(kernels: &[Kernel], members: &BTreeMap<CommId, BTreeSet<u32>>) -> Vec<Value> {
    let sizes: BTreeMap<CommId, u32> = kernels
        .iter()
        .map(|own| (own.operation.comm, own.operation.comm_size))
        .collect();
    let group = |(comm, size): (CommId, u32)| {
        json!({
            "pg_name": comm.to_string(),
            "pg_desc": "communicator",
            "backend_config": "cuda:nccl",
            "pg_size": size,
            "ranks": members.get(&comm),
        })
    };
    sizes.into_iter().map(group).collect()
}

fn header(rank: &RankTimeline, groups: &[Value]) -> Vec<(&'static str, Value)> {
    let info = json!({
        "backend": "nccl",
        "rank": rank.process.rank,
        "world_size": rank.process.world_size,
        "pg_count": groups.len(),
        "pg_config": groups,
    });
    vec![
        ("schemaVersion", json!(1)),
        ("deviceProperties", json!([])),
        ("distributedInfo", info),
        ("displayTimeUnit", json!("ms")),
        ("baseTimeNanoseconds", json!(0)),
    ]
}

fn write_names(trace: &mut ChromeTrace<'_>, rank: &RankTimeline) -> io::Result<()> {
    let names = [
        (rank.process.pid, "python".to_owned()),
        (device(rank), format!("GPU of rank {}", rank.process.rank)),
    ];
    for (pid, name) in names {
        trace.event(&json!({
            "ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0,
            "args": {"name": name},
        }))?;
    }
    Ok(())
}

/// Kineto names the device as process of its kernels.
fn device(rank: &RankTimeline) -> u32 {
    rank.process.rank
}

fn kernel_event(
    rank: &RankTimeline,
    kernel: &Kernel,
    number: u64,
    members: &BTreeMap<CommId, BTreeSet<u32>>,
) -> Value {
    let ranks: Vec<String> = members
        .get(&kernel.operation.comm)
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    json!({
        "ph": "X",
        "cat": "kernel",
        "name": format!("ncclDevKernel_{}", kernel.operation.op.name()),
        "pid": device(rank),
        "tid": STREAM,
        "ts": micros(kernel.start_ns),
        "dur": micros(kernel.end_ns.saturating_sub(kernel.start_ns)),
        "args": {
            "device": device(rank),
            "stream": STREAM,
            "correlation": number,
            "Collective name": torch_name(kernel.operation.op),
            "In msg nelems": kernel.operation.count,
            "Out msg nelems": kernel.operation.count,
            "Group size": kernel.operation.comm_size,
            "dtype": torch_type(kernel.operation.datatype),
            "Process Group Name": kernel.operation.comm.to_string(),
            "Process Group Description": "communicator",
            "Process Group Ranks": format!("[{}]", ranks.join(", ")),
            "Seq": kernel.operation.seq,
            "Measured by": if kernel.is_device { "device" } else { "host" },
        },
    })
}

/// Name of an operation in the `PyTorch` profiler.
fn torch_name(op: Op) -> &'static str {
    match op {
        Op::AllReduce => "allreduce",
        Op::AllGather => "_allgather_base",
        Op::ReduceScatter => "_reduce_scatter_base",
        Op::Broadcast => "broadcast",
        Op::Reduce => "reduce",
        Op::AllToAll => "all_to_all",
        Op::Gather => "gather",
        Op::Scatter => "scatter",
        Op::Send => "send",
        Op::Recv => "recv",
    }
}

/// Name of an element type in `PyTorch`, and its size in bytes, by NCCL's numbering.
const TYPES: [(&str, u64); 12] = [
    ("Char", 1),
    ("Byte", 1),
    ("Int", 4),
    ("UInt32", 4),
    ("Long", 8),
    ("UInt64", 8),
    ("Half", 2),
    ("Float", 4),
    ("Double", 8),
    ("BFloat16", 2),
    ("Float8_e4m3fn", 1),
    ("Float8_e5m2", 1),
];

fn element_type(datatype: u32) -> Option<&'static (&'static str, u64)> {
    TYPES.get(usize::try_from(datatype).ok()?)
}

fn torch_type(datatype: u32) -> &'static str {
    element_type(datatype).map_or("", |(name, _)| name)
}

/// Size of so many elements, bytes. An unknown type counts as bytes: the profiler plugin reports
/// sizes without types.
pub(super) fn bytes(count: u64, datatype: u32) -> u64 {
    count.saturating_mul(element_type(datatype).map_or(1, |(_, size)| *size))
}
