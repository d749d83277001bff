//! Recognition of a format by the content of a file.

use std::borrow::Cow;
use std::fmt;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::pickle::is_pickle;
use crate::{bytedance, calls, inspector, ras, watchdog};

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Chrome trace of the `PyTorch` profiler.
    Kineto,
    /// Dump of `PyTorch`'s Flight Recorder.
    FlightRecorder,
    /// Lines of the NCCL Inspector.
    Inspector,
    /// Recording of `fleet-agent`, which is replayed.
    Recording,
    /// Table of call times (CSV).
    Calls,
    /// Operations of `ByteDance`'s `StragglerAnalysis` (Parquet).
    Operations,
    /// `SQLite` export of Nsight Systems.
    Nsys,
    /// Answer of NCCL's RAS subsystem.
    RasStatus,
    /// Log with lines of `PyTorch`'s watchdog.
    Watchdog,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 9] = [
        Self::Kineto,
        Self::FlightRecorder,
        Self::Inspector,
        Self::Recording,
        Self::Calls,
        Self::Operations,
        Self::Nsys,
        Self::RasStatus,
        Self::Watchdog,
    ];

    /// Recognises uncompressed content.
    pub fn recognise(bytes: &[u8]) -> Option<Self> {
        if is_pickle(bytes) {
            return Some(Self::FlightRecorder);
        }
        if bytes.starts_with(SQLITE_MAGIC) {
            return Some(Self::Nsys);
        }
        if bytes.starts_with(bytedance::MAGIC) {
            return Some(Self::Operations);
        }
        if calls::is_table(bytes) {
            return Some(Self::Calls);
        }
        if ras::is_answer(bytes) {
            return Some(Self::RasStatus);
        }
        if watchdog::is_log(bytes) {
            return Some(Self::Watchdog);
        }
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        let lines = || bytes.split(|byte| *byte == b'\n');
        let is_inspector = |line: &[u8]| line.len() <= MAX_LINE && inspector::is_line(line);
        if lines().take(MARKERS).any(is_inspector) {
            return Some(Self::Inspector);
        }
        let line = lines().next()?;
        if line.len() <= MAX_LINE && is_recording_header(line) {
            return Some(Self::Recording);
        }
        let has = |key: &[u8]| memchr::memmem::find(bytes, key).is_some();
        if has(b"\"traceEvents\"") {
            return Some(Self::Kineto);
        }
        let is_dump = has(b"\"entries\"") && (has(b"\"pg_config\"") || has(b"\"profiling_name\""));
        is_dump.then_some(Self::FlightRecorder)
    }

    /// Limits of what a file of this format can show.
    pub const fn limits(self) -> &'static [&'static str] {
        match self {
            Self::Kineto => &[
                "hangs: the trace is written when the traced steps have ended",
                "the cause on the host, such as a preempted process: no events of the kernel",
                "anything before and after the traced steps",
            ],
            Self::FlightRecorder => &[
                "computation and transfers of the GPU",
                "slow ranks, unless the job ran with TORCH_NCCL_ENABLE_TIMING=1",
                "which send or receive waits, if a collective operation waits as well and the rank has enqueued others since",
                "cost of slow ranks: a dump has no iterations",
            ],
            Self::Inspector => &[
                "hangs: an operation is written when it has ended",
                "computation and transfers between stages, so not the first cause of a chain",
                "cost: the lines have no start times",
            ],
            Self::Recording => &["anything before and after the recording"],
            Self::Calls => &[
                "hangs, computation and transfers",
                "clocks that are apart by less than an iteration: the times of all hosts are compared as they are",
            ],
            Self::Nsys => &[
                "hangs: the export is written when the trace has ended",
                "ranks and communicators: GPUs are numbered in the order of files, processes and devices, and compared where their operations end together",
                "waits in sends and receives",
            ],
            Self::RasStatus => &[
                "an operation that all ranks have launched and that does not end",
                "slow ranks, and sends and receives: NCCL counts the launches of collectives",
            ],
            Self::Watchdog => &[
                "what a rank does that logged nothing, and which ranks the other groups have: dumps of the Flight Recorder tell more (TORCH_NCCL_TRACE_BUFFER_SIZE=2000)",
                "slow ranks",
            ],
            Self::Operations => &[
                "hangs and the cause on the host",
                "ranks of one stage and replica, which the rows do not tell apart",
            ],
        }
    }
}

/// First bytes of a `SQLite` database.
pub const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// First line of a recording.
#[derive(Deserialize)]
struct RecordingHeader<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    processes: Vec<IgnoredAny>,
}

fn is_recording_header(line: &[u8]) -> bool {
    let header = serde_json::from_slice::<RecordingHeader<'_>>(line);
    header.is_ok_and(|header| header.kind == "header" && !header.processes.is_empty())
}

/// Longest line of the Inspector, bytes; verbose lines have one entry per channel.
const MAX_LINE: usize = 1 << 20;
/// Lines of the Inspector among which one is of an operation: a dump begins with markers.
const MARKERS: usize = 8;

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kineto => "PyTorch profiler (Kineto) traces",
            Self::FlightRecorder => "PyTorch Flight Recorder dumps",
            Self::Inspector => "NCCL Inspector lines",
            Self::Recording => "recordings of fleet-agent",
            Self::Calls => "tables of call times (CSV)",
            Self::Nsys => "Nsight Systems exports (SQLite)",
            Self::RasStatus => "answer of NCCL's RAS subsystem",
            Self::Watchdog => "logs of PyTorch's watchdog",
            Self::Operations => "operations of StragglerAnalysis (Parquet)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognised_by_content() {
        let inspector = r#"{"header":{"id":"0x1","rank":0,"n_ranks":2},"metadata":{"pid":1}}"#;
        for (bytes, format) in [
            (&b"\x80\x02}."[..], Some(Format::FlightRecorder)),
            (
                b"{\"version\":\"2.9\",\"entries\":[],\"pg_config\":{}}",
                Some(Format::FlightRecorder),
            ),
            (
                b" {\"schemaVersion\":1,\n\"traceEvents\":[]}",
                Some(Format::Kineto),
            ),
            (inspector.as_bytes(), Some(Format::Inspector)),
            (
                format!("{{\"dump_stats\":{{\"overflows\":1}}}}\n{inspector}").as_bytes(),
                Some(Format::Inspector),
            ),
            (
                b"{\"kind\":\"header\",\"processes\":[{\"pid\":1}]}\n{\"kind\":\"call\"}\n",
                Some(Format::Recording),
            ),
            (b"{\"resourceMetrics\":[]}", None),
            (b"SQLite format 3\0\x10", Some(Format::Nsys)),
            (b"PAR1", Some(Format::Operations)),
            (b"rank,op_count,call_time_s\n0,1,1.5\n", Some(Format::Calls)),
            (b"", None),
            (b"# a text\n", None),
        ] {
            assert_eq!(Format::recognise(bytes), format, "{bytes:?}");
        }
    }
}
