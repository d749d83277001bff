//! Recognition of a format by the content of a file.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::inspector;
use crate::pickle::is_pickle;

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
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Kineto, Self::FlightRecorder, Self::Inspector];

    /// Recognises uncompressed content.
    pub fn recognise(bytes: &[u8]) -> Option<Self> {
        if is_pickle(bytes) {
            return Some(Self::FlightRecorder);
        }
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        let line = bytes.split(|byte| *byte == b'\n').next()?;
        if line.len() <= MAX_LINE && inspector::is_line(line) {
            return Some(Self::Inspector);
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
                "hangs of sends and receives alone: only collective operations are analysed",
                "cost of slow ranks: a dump has no iterations",
            ],
            Self::Inspector => &[
                "hangs: an operation is written when it has ended",
                "computation and transfers between stages, so not the first cause of a chain",
                "cost: the lines have no start times",
            ],
        }
    }
}

/// Longest line of the Inspector, bytes; verbose lines have one entry per channel.
const MAX_LINE: usize = 1 << 20;

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kineto => "PyTorch profiler (Kineto) traces",
            Self::FlightRecorder => "PyTorch Flight Recorder dumps",
            Self::Inspector => "NCCL Inspector lines",
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
            (b"{\"resourceMetrics\":[]}", None),
            (b"PAR1", None),
            (b"", None),
            (b"# a text\n", None),
        ] {
            assert_eq!(Format::recognise(bytes), format, "{bytes:?}");
        }
    }
}
