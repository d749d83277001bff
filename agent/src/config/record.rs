//! Flags of `record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::config::positive_duration;
use crate::config::run::ProbeArgs;

pub(super) const EXAMPLES: &str = "\
Examples: record every GPU job of this host for a minute, and replay it elsewhere:

  fleet-agent record job.jsonl.gz --duration 1m
  fleet-agent replay job.jsonl.gz --cluster lab \\
      --endpoint http://localhost:4317

Record two processes only, with kernel launches and copies, until Ctrl-C:

  fleet-agent record job.jsonl --pid 4711 --pid 4712 --count launches,copies

One line per call, in order of entry: collectives, waits for the GPU however short, communicators. \
Launches and copies are counted in the kernel, so their lines are sums over about 100 ms. A call of \
more than ten seconds has one line for its entry and one for its return; a call that has not \
returned at the end has only the first. Of kernel evidence the delays of each second are recorded.

Stacks of the ranks are sampled twenty times per second, in the threads that call the libraries, and \
stored once each: names of functions, and paths and lines of Python programs.

Needs the same privileges as `run` and can run beside it. FILE is readable at any time; if the \
recorder is killed, at most the last second is missing.

Exit codes: 0 recorded, 64 invalid flags, 69 no process called a GPU library, 73 FILE exists or cannot \
be written, 77 not permitted by the kernel.";

/// Flags of `record`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags of the command line are independent"
)]
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RecordArgs {
    /// File to write; compressed when the name ends in .gz
    #[arg(value_name = "FILE", env = "FLEET_AGENT_FILE")]
    pub file: PathBuf,

    /// Duration of the recording [default: until SIGINT or SIGTERM]
    #[arg(long, value_name = "DURATION", env = "FLEET_AGENT_DURATION", value_parser = positive_duration)]
    pub duration: Option<Duration>,

    /// Record only this process; can be given several times
    #[arg(
        long,
        value_name = "PID",
        value_delimiter = ',',
        env = "FLEET_AGENT_PID"
    )]
    pub pid: Vec<u32>,

    /// Replace FILE if it exists
    #[arg(long, env = "FLEET_AGENT_OVERWRITE")]
    pub overwrite: bool,

    /// Do not sample the stacks of the ranks
    #[arg(long, env = "FLEET_AGENT_WITHOUT_STACKS")]
    pub without_stacks: bool,

    /// Flags of the probes
    #[command(flatten)]
    pub probes: ProbeArgs,

    /// Print the summary as JSON
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}
