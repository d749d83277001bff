//! Recordings that consist of GPU rows only: assignment of rows to processes, and their order.
//!
//! Rows of the communicator of all ranks identify their process by their rank. The offset of a
//! GPU's timer to the host's clock follows from the operation that waited least, and differs from
//! GPU to GPU: so rows of other communicators belong to the process whose GPU has the same offset.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fleet_agent_core::event::{
    Call, CallKind, CommInit, Event, GpuOperation, GpuSpan, Operation, Process,
};

use crate::recording::device::ParsedRow;

/// Maximum number of rows of one recording.
pub(in crate::recording) const MAX_ROWS: usize = 4_000_000;

/// Factor by which the offset of the right GPU must be nearer than any other.
const CLEARLY: u64 = 4;

/// Communicator and rank.
type Member = (u64, u32);

/// Returns the events of all rows in order; an error if a row cannot be assigned to a process.
pub(in crate::recording) fn events(
    rows: Vec<ParsedRow>,
    processes: &[Process],
) -> Result<VecDeque<Event>, String> {
    let mut members: BTreeMap<Member, Vec<ParsedRow>> = BTreeMap::new();
    for row in rows {
        members
            .entry((row.comm_id, row.rank))
            .or_default()
            .push(row);
    }
    let assigned = assign_processes(&members, processes)?;
    let mut events = Vec::new();
    for (member, mut rows) in members {
        let Some((pid, ahead_ns)) = assigned.get(&member).copied() else {
            continue;
        };
        rows.sort_by_key(|row| row.host_ns);
        let calls = rows.first().map(|row| comm_init(row, pid));
        events.extend(calls);
        for (seq, row) in (0..).zip(&rows) {
            events.push(Event::Call(call(row, pid)));
            events.push(Event::GpuOperation(gpu_operation(row, pid, seq, ahead_ns)));
        }
    }
    events.sort_by_key(Event::ts_ns);
    Ok(events.into())
}

/// Returns the process of each member and the offset of its GPU.
fn assign_processes(
    members: &BTreeMap<Member, Vec<ParsedRow>>,
    processes: &[Process],
) -> Result<BTreeMap<Member, (u32, u64)>, String> {
    let ahead = |rows: &[ParsedRow]| {
        let each = rows
            .iter()
            .map(|row| row.span.start_ns.saturating_sub(row.host_ns));
        each.min().unwrap_or(0)
    };
    let of_rank = |rank: u32| processes.iter().find(|process| process.rank == rank);
    let mut assigned = BTreeMap::new();
    let mut gpus: BTreeMap<u32, u64> = BTreeMap::new();
    for (member, rows) in members {
        let spans_job =
            |process: &&Process| rows.iter().all(|row| row.nranks == process.world_size);
        if let Some(process) = of_rank(member.1).filter(spans_job) {
            assigned.insert(*member, (process.pid, ahead(rows)));
            let known = gpus.entry(process.pid).or_insert(u64::MAX);
            *known = (*known).min(ahead(rows));
        }
    }
    for (member, rows) in members {
        if assigned.contains_key(member) {
            continue;
        }
        let own = ahead(rows);
        let mut by_distance: Vec<(u64, u32)> = gpus
            .iter()
            .map(|(pid, ahead_ns)| (ahead_ns.abs_diff(own), *pid))
            .collect();
        by_distance.sort_unstable();
        let second = by_distance.get(1).map_or(u64::MAX, |(apart, _)| *apart);
        match by_distance.first() {
            Some((apart, pid)) if apart.saturating_mul(CLEARLY) < second => {
                assigned.insert(*member, (*pid, own));
            }
            _ => {
                let (comm, rank) = member;
                return Err(format!(
                    "cannot determine which process is rank {rank} of communicator {comm:016x}"
                ));
            }
        }
    }
    check_distinct(&assigned)?;
    Ok(assigned)
}

/// Checks that no process is two ranks of one communicator.
fn check_distinct(assigned: &BTreeMap<Member, (u32, u64)>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for ((comm, rank), (pid, _)) in assigned {
        if !seen.insert((comm, pid)) {
            return Err(format!(
                "process {pid} matches rank {rank} and another rank of communicator {comm:016x}"
            ));
        }
    }
    Ok(())
}

fn comm_init(first: &ParsedRow, pid: u32) -> Event {
    Event::Call(Call {
        ts_ns: first.host_ns.saturating_sub(1),
        dur_ns: 0,
        pid,
        tid: pid,
        kind: CallKind::CommInit(CommInit {
            nranks: first.nranks,
            rank: first.rank,
            unique_id: first.comm_id,
            comm: Some(first.comm_id),
        }),
    })
}

fn call(row: &ParsedRow, pid: u32) -> Call {
    Call {
        ts_ns: row.host_ns,
        dur_ns: 0,
        pid,
        tid: pid,
        kind: CallKind::Operation(Operation {
            op: row.op,
            count: row.count,
            datatype: row.datatype,
            comm: row.comm_id,
            seq: None,
            peer: None,
        }),
    }
}

fn gpu_operation(row: &ParsedRow, pid: u32, seq: u64, ahead_ns: u64) -> GpuOperation {
    let GpuSpan { stop_ns, .. } = row.span;
    GpuOperation {
        ts_ns: stop_ns.saturating_sub(ahead_ns).max(row.host_ns),
        pid,
        comm_id: row.comm_id,
        rank: row.rank,
        nranks: row.nranks,
        nth: 0,
        op: row.op,
        root: row.root,
        seq,
        nccl_seq: None,
        count: row.count,
        host_ns: row.host_ns,
        timer: Some(row.span),
        lost: 0,
    }
}
