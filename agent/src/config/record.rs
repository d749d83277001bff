//! Flags of `record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::config::positive_duration;
use crate::config::run::ProbeArgs;

pub(super) const EXAMPLES: &str = "\
Examples: record every GPU job of this host for a minute, and look at it again elsewhere:

  fleet-agent record job.jsonl.gz --duration 1m
  fleet-agent replay job.jsonl.gz --endpoint http://localhost:4317 --cluster lab

Two processes only, with kernel launches and copies, until Ctrl-C:

  fleet-agent record job.jsonl --pid 4711 --pid 4712 --count launches,copies

One line per call, in order of entry: collectives, waits for the GPU however short, communicators.
Launches and copies are counted in the kernel, so their lines are sums of about 100 ms. A call that
lasts longer than ten seconds has one line for its entry and one for its return, and one that lasts
until the end the first of them. Kernel evidence, such as time off the CPU, is not recorded.

It takes the rights of `run` and may run beside it. FILE can be read at any time, and up to its last
second when the recording is killed.

Exit codes: 0 recorded, 64 wrong flags, 69 no process called NCCL or RCCL, 73 FILE cannot be written
or is there already, 77 the kernel does not let it watch.";

/// Flags of `record`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RecordArgs {
    /// Where to write; compressed when the name ends in .gz
    #[arg(value_name = "FILE", env = "FLEET_AGENT_FILE")]
    pub file: PathBuf,

    /// How long to record [default: until SIGINT or SIGTERM]
    #[arg(long, value_name = "DURATION", env = "FLEET_AGENT_DURATION", value_parser = positive_duration)]
    pub duration: Option<Duration>,

    /// Record only this process; may be given several times
    #[arg(
        long,
        value_name = "PID",
        value_delimiter = ',',
        env = "FLEET_AGENT_PID"
    )]
    pub pid: Vec<u32>,

    /// Replace FILE when it is there
    #[arg(long, env = "FLEET_AGENT_OVERWRITE")]
    pub overwrite: bool,

    /// What is probed, and how
    #[command(flatten)]
    pub probes: ProbeArgs,

    /// Print the summary as JSON
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}
