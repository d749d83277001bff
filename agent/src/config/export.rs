//! Flags of `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub(super) const EXAMPLES: &str = "\
Example: a recording as a trace for https://ui.perfetto.dev, where it is opened with the mouse and
stays in the browser:

  fleet-agent export testdata/recordings/host-sleep-rank2.jsonl.gz --format perfetto \\
      --output /tmp/trace.json

Recordings of several hosts are aligned by the collectives that they have in common.

Exit codes: 0 written, 64 invalid flags, 65 damaged file, not a recording, or no collective in it,
73 the output cannot be written.";

/// Format of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Chrome trace for ui.perfetto.dev, one process per rank
    Perfetto,
    /// Trace of the `PyTorch` profiler, one file per rank in a directory
    Kineto,
    /// Lines of NCCL's Inspector, one per collective
    Inspector,
}

/// Flags of `export`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ExportArgs {
    /// Recordings, one per host
    #[arg(required = true, value_name = "FILE", env = "FLEET_AGENT_FILES")]
    pub files: Vec<PathBuf>,

    /// Format to write
    #[arg(long, value_name = "FORMAT", env = "FLEET_AGENT_FORMAT")]
    pub format: ExportFormat,

    /// File to write, compressed if it ends with .gz; with --format kineto a directory
    #[arg(long, value_name = "PATH", env = "FLEET_AGENT_OUTPUT")]
    pub output: PathBuf,
}
