//! Rows of operations that ran on GPUs. Pure.
//!
//! `fleet-agent record` writes them among the calls, each with its process and the time at which it
//! was recorded. Older recordings consist of rows only, without processes and not in order of time:
//! those are read as a whole (`device_only`). The host's calls are then derived from the enqueue
//! times of the rows.

use std::borrow::Cow;

use fleet_agent_core::event::{Event, GpuOperation, GpuSpan, Op};
use serde::Deserialize;

use crate::functions::{self, Effect};

pub(super) mod device_only;

/// Prefix of a row.
const ROW_PREFIX: &[u8] = b"{\"kind\":\"coll\"";

/// Returns whether a line is such a row.
pub(super) fn is_row(line: &[u8]) -> bool {
    line.starts_with(ROW_PREFIX)
}

/// Row as in the file.
#[derive(Debug, Deserialize)]
pub(super) struct Row<'a> {
    #[serde(borrow)]
    comm: Cow<'a, str>,
    #[serde(borrow)]
    func: Cow<'a, str>,
    #[serde(borrow, default)]
    datatype: Cow<'a, str>,
    #[serde(default)]
    count: u64,
    rank: u32,
    nranks: u32,
    host_ns: u64,
    gpu_start_ns: u64,
    gpu_stop_ns: u64,
    #[serde(default)]
    pid: Option<u32>,
    #[serde(default)]
    ts: Option<u64>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default)]
    comm_seq: Option<u64>,
    #[serde(default)]
    comm_nth: u32,
    #[serde(default)]
    root: Option<u32>,
}

/// Parsed row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParsedRow {
    op: Op,
    root: Option<u32>,
    comm_id: u64,
    rank: u32,
    nranks: u32,
    datatype: u32,
    count: u64,
    host_ns: u64,
    span: GpuSpan,
}

impl Row<'_> {
    /// Returns the event of a row that has a process.
    pub(super) fn event(&self) -> Result<Event, &'static str> {
        let parsed = self.parse()?;
        let (pid, ts_ns) = self.pid.zip(self.ts).ok_or("row without pid and ts")?;
        let seq = self.comm_seq.ok_or("row without comm_seq")?;
        let timer = (parsed.span.stop_ns > 0).then_some(parsed.span);
        Ok(Event::GpuOperation(GpuOperation {
            ts_ns,
            pid,
            comm_id: parsed.comm_id,
            rank: parsed.rank,
            nranks: parsed.nranks,
            nth: self.comm_nth,
            op: parsed.op,
            root: parsed.root,
            seq,
            nccl_seq: self.seq.filter(|_| parsed.op.is_collective()),
            count: parsed.count,
            host_ns: parsed.host_ns,
            timer,
            lost: 0,
        }))
    }

    /// Returns whether the row has a process.
    pub(super) fn is_placed(&self) -> bool {
        self.pid.is_some()
    }

    pub(super) fn parse(&self) -> Result<ParsedRow, &'static str> {
        let name = format!("nccl{}", self.func);
        let Some(Effect::Operation(op)) = functions::by_name(&name).map(|function| function.effect)
        else {
            return Err("row with an unknown operation");
        };
        if self.rank >= self.nranks {
            return Err("row with a rank outside its communicator");
        }
        Ok(ParsedRow {
            op,
            root: self.root.filter(|_| !op.waits_for_all()),
            comm_id: u64::from_str_radix(&self.comm, 16)
                .ok()
                .ok_or("row with a comm that is not a number")?,
            rank: self.rank,
            nranks: self.nranks,
            datatype: datatype(&self.datatype),
            count: self.count,
            host_ns: self.host_ns,
            span: GpuSpan {
                start_ns: self.gpu_start_ns,
                stop_ns: self.gpu_stop_ns,
            },
        })
    }
}

/// Returns NCCL's number of an element type.
fn datatype(name: &str) -> u32 {
    const NAMES: [&str; 12] = [
        "ncclInt8",
        "ncclUint8",
        "ncclInt32",
        "ncclUint32",
        "ncclInt64",
        "ncclUint64",
        "ncclFloat16",
        "ncclFloat32",
        "ncclFloat64",
        "ncclBfloat16",
        "ncclFloat8e4m3",
        "ncclFloat8e5m2",
    ];
    let known = (0..).zip(NAMES).find(|(_, known)| *known == name);
    known.map_or(u32::MAX, |(number, _)| number)
}

#[cfg(test)]
mod tests;
