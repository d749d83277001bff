//! Flags of `export`.

use std::path::PathBuf;

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Example: a recording as a trace for https://ui.perfetto.dev, where it is opened with the mouse and \
stays in the browser:

  fleet-agent export testdata/recordings/host-sleep-rank2.jsonl.gz \\
      --output /tmp/trace.json

Recordings of several hosts are aligned by the collectives that they have in common.

Exit codes: 0 written, 64 invalid flags, 65 damaged file, not a recording, or no collective in it, \
73 the output cannot be written.";

/// Flags of `export`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ExportArgs {
    /// Recordings, one per host
    #[arg(required = true, value_name = "FILE", env = "FLEET_AGENT_FILES")]
    pub files: Vec<PathBuf>,

    /// File to write, compressed if it ends with .gz
    #[arg(long, value_name = "PATH", env = "FLEET_AGENT_OUTPUT")]
    pub output: PathBuf,
}
