//! Chrome trace for <https://ui.perfetto.dev> and `chrome://tracing`: one process per rank, with
//! tracks for collectives, waits, copies, time off the CPU and evidence of the host.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use fleet_agent_core::signal::CommId;
use serde_json::{Value, json};

use crate::trace::chrome::{ChromeTrace, micros};
use crate::trace::kernel::{Kernel, kernels};
use crate::trace::timeline::{Collective, RankTimeline, Span};

/// Bits of a process or thread id on Linux, above which the number of the host or track is added.
const ID_BITS: u32 = 22;

/// Tracks of a rank, in the order in which they are shown.
const TRACKS: [&str; 4] = [
    "collectives",
    "waits for the GPU",
    "memory copies",
    "off CPU",
];

/// Track of a rank.
#[derive(Debug, Clone, Copy)]
enum Track {
    Collectives,
    Waits,
    Copies,
    OffCpu,
}

/// First entry of each collective, over all ranks.
type Entries = BTreeMap<(CommId, u64), u64>;

/// Writes the trace.
pub(super) fn write(output: &mut dyn Write, ranks: &[RankTimeline]) -> io::Result<()> {
    let entries = first_entries(ranks);
    let mut trace = ChromeTrace::begin(output)?;
    for rank in ranks {
        write_rank(&mut trace, rank, &entries)?;
    }
    trace.end()
}

fn first_entries(ranks: &[RankTimeline]) -> Entries {
    let mut entries = Entries::new();
    for collective in ranks.iter().flat_map(|rank| &rank.collectives) {
        let first = entries
            .entry((collective.operation.comm, collective.operation.seq))
            .or_insert(u64::MAX);
        *first = collective.call.start_ns.min(*first);
    }
    entries
}

fn write_rank(
    trace: &mut ChromeTrace<'_>,
    rank: &RankTimeline,
    entries: &Entries,
) -> io::Result<()> {
    let pid = process_id(rank);
    write_names(trace, rank, pid)?;
    let nothing = json!({});
    for collective in &rank.collectives {
        let (name, details) = (collective.operation.op.name(), details(collective, entries));
        let track = Track::Collectives;
        trace.event(&slice(pid, track, &collective.call, name, &details))?;
        write_flight(trace, pid, collective, &details)?;
    }
    for wait in &rank.waits {
        trace.event(&slice(
            pid,
            Track::Waits,
            wait,
            "wait for the GPU",
            &nothing,
        ))?;
    }
    for (span, bytes) in &rank.copies {
        let bytes = json!({"bytes": bytes});
        trace.event(&slice(pid, Track::Copies, span, "memory copy", &bytes))?;
    }
    for absence in &rank.off_cpu {
        let name = if absence.is_preempted {
            "preempted"
        } else {
            "blocked"
        };
        trace.event(&slice(pid, Track::OffCpu, &absence.span, name, &nothing))?;
    }
    for kernel in kernels(rank) {
        write_kernel(trace, pid, &kernel)?;
    }
    for sample in &rank.samples {
        trace.event(&json!({
            "ph": "C",
            "name": sample.name,
            "pid": pid,
            "ts": micros(sample.ts_ns),
            "args": {"value": sample.value},
        }))?;
    }
    Ok(())
}

/// Writes the time from the issue of a collective to its completion. Several may be in flight.
fn write_flight(
    trace: &mut ChromeTrace<'_>,
    pid: u32,
    collective: &Collective,
    details: &Value,
) -> io::Result<()> {
    let Some(completed_ns) = collective.completed_ns else {
        return Ok(());
    };
    for (phase, ns) in [("b", collective.call.start_ns), ("e", completed_ns)] {
        trace.event(&json!({
            "ph": phase,
            "cat": "in flight",
            "name": collective.operation.op.name(),
            "id": format!("{}:{}:{pid}", collective.operation.comm, collective.operation.seq),
            "pid": pid,
            "tid": thread_id(Track::Collectives, collective.call.tid),
            "ts": micros(ns),
            "args": details,
        }))?;
    }
    Ok(())
}

/// Writes the time of a collective on the GPU. Those of several communicators may overlap.
fn write_kernel(trace: &mut ChromeTrace<'_>, pid: u32, kernel: &Kernel) -> io::Result<()> {
    for (phase, ns) in [("b", kernel.start_ns), ("e", kernel.end_ns)] {
        trace.event(&json!({
            "ph": phase,
            "cat": "on the GPU",
            "name": format!("{} on the GPU", kernel.op.name()),
            "id": format!("gpu:{}:{}:{pid}", kernel.comm, kernel.seq),
            "pid": pid,
            "tid": pid,
            "ts": micros(ns),
            "args": {"communicator": kernel.comm.to_string(), "seq": kernel.seq},
        }))?;
    }
    Ok(())
}

fn details(collective: &Collective, entries: &Entries) -> Value {
    let entered_ns = collective.call.start_ns;
    let first_ns = entries.get(&(collective.operation.comm, collective.operation.seq));
    let late_ns = first_ns.map_or(0, |first_ns| entered_ns.saturating_sub(*first_ns));
    json!({
        "communicator": collective.operation.comm.to_string(),
        "communicator rank": collective.operation.comm_rank,
        "communicator size": collective.operation.comm_size,
        "seq": collective.operation.seq,
        "count": collective.operation.count,
        "after the first rank (us)": micros(late_ns),
    })
}

fn write_names(trace: &mut ChromeTrace<'_>, rank: &RankTimeline, pid: u32) -> io::Result<()> {
    let name = format!("rank {} (host {})", rank.process.rank, rank.host);
    trace.event(&metadata(pid, "process_name", &json!({"name": name})))?;
    let order = json!({"sort_index": rank.process.rank});
    trace.event(&metadata(pid, "process_sort_index", &order))?;
    let collectives = rank.collectives.iter().map(|own| own.call.tid);
    let copies = rank.copies.iter().map(|(span, _)| span.tid);
    let absences = rank.off_cpu.iter().map(|own| own.span.tid);
    let tracks: [(Track, BTreeSet<u32>); 4] = [
        (Track::Collectives, collectives.collect()),
        (Track::Waits, rank.waits.iter().map(|own| own.tid).collect()),
        (Track::Copies, copies.collect()),
        (Track::OffCpu, absences.collect()),
    ];
    for ((track, threads), name) in tracks.into_iter().zip(TRACKS) {
        for own in threads {
            let tid = thread_id(track, own);
            let shown = format!("{name} (thread {own})");
            let names = [
                ("thread_name", json!({"name": shown})),
                ("thread_sort_index", json!({"sort_index": tid})),
            ];
            for (name, args) in names {
                let event = json!({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args});
                trace.event(&event)?;
            }
        }
    }
    Ok(())
}

fn metadata(pid: u32, name: &str, args: &Value) -> Value {
    json!({"ph": "M", "name": name, "pid": pid, "args": args})
}

fn slice(pid: u32, track: Track, span: &Span, name: &str, args: &Value) -> Value {
    json!({
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": thread_id(track, span.tid),
        "ts": micros(span.start_ns),
        "dur": micros(span.end_ns.saturating_sub(span.start_ns)),
        "args": args,
    })
}

/// Returns an id that differs from those of the processes of other hosts.
fn process_id(rank: &RankTimeline) -> u32 {
    let host = u32::try_from(rank.host).unwrap_or(u32::MAX);
    host.wrapping_shl(ID_BITS) | rank.process.pid
}

fn thread_id(track: Track, tid: u32) -> u32 {
    (track as u32).wrapping_shl(ID_BITS) | tid
}
