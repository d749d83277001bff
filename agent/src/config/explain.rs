//! Flags of `explain` and `trace`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::config::positive_duration;
use crate::config::run::ProbeArgs;

/// Default period of the reports of both commands.
const REPORT_PERIOD: &str = "5s";

pub(super) const EXPLAIN_EXAMPLES: &str = "\
Examples: what the GPU processes of this host lose time to, watched for 30 seconds, without a server:

  fleet-agent explain

One process, for a minute, as JSON:

  fleet-agent explain --pid 4711 --duration 1m --json

What a recording of another host shows:

  fleet-agent explain job.jsonl.gz

A process is compared with the other ranks of its job on this host, else with its own past. What no \
healthy process spends time on, such as waiting for a CPU, is reported by its amount alone. A cause \
has to hold for ten seconds, one of GPU library calls for fifteen.

Needs the same privileges as `run` and can run beside it.

Exit codes: 0 explained, also if nothing stands out, 64 invalid flags, 65 damaged file or not a \
recording, 69 no process called a GPU library, 77 not permitted by the kernel.";

pub(super) const TRACE_EXAMPLES: &str = "\
Examples: durations of the calls of one process and what it loses time to, renewed every five \
seconds until Ctrl-C:

  fleet-agent trace --pid 4711

One JSON object per process and period, for a minute:

  fleet-agent trace --duration 1m --json

Needs the same privileges as `run` and can run beside it. To keep what is seen, use `record`, whose \
files `explain` reads.

Exit codes: 0 traced, 64 invalid flags, 69 no process called a GPU library, 77 not permitted by the \
kernel.";

/// Flags of `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ExplainArgs {
    /// Recordings to explain, one per host [default: this host]
    #[arg(value_name = "FILE", env = "FLEET_AGENT_FILES")]
    pub files: Vec<PathBuf>,

    /// Explain only this process; can be given several times
    #[arg(
        long,
        value_name = "PID",
        value_delimiter = ',',
        env = "FLEET_AGENT_PID"
    )]
    pub pid: Vec<u32>,

    /// Time for which this host is watched
    #[arg(long, value_name = "DURATION", default_value = "30s", env = "FLEET_AGENT_DURATION", value_parser = positive_duration)]
    pub duration: Duration,

    /// Period over which a process is observed: a cause holds for two of them or more
    #[arg(long, hide = true, value_name = "DURATION", default_value = REPORT_PERIOD, env = "FLEET_AGENT_REPORT_PERIOD", value_parser = positive_duration)]
    pub report_period: Duration,

    /// Explain only the last part of the recordings
    #[arg(long, value_name = "DURATION", requires = "files", env = "FLEET_AGENT_SINCE", value_parser = positive_duration)]
    pub since: Option<Duration>,

    /// Also list the calls and the time off the CPU of each process
    #[arg(long, env = "FLEET_AGENT_PER_PROCESS")]
    pub per_process: bool,

    /// Flags of the probes
    #[command(flatten)]
    pub probes: ProbeArgs,

    /// Print JSON
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}

/// Flags of `trace`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TraceArgs {
    /// Trace only this process; can be given several times
    #[arg(
        long,
        value_name = "PID",
        value_delimiter = ',',
        env = "FLEET_AGENT_PID"
    )]
    pub pid: Vec<u32>,

    /// Time to trace [default: until SIGINT or SIGTERM]
    #[arg(long, value_name = "DURATION", env = "FLEET_AGENT_DURATION", value_parser = positive_duration)]
    pub duration: Option<Duration>,

    /// Period over which a process is observed: a cause holds for two of them or more
    #[arg(long, hide = true, value_name = "DURATION", default_value = REPORT_PERIOD, env = "FLEET_AGENT_REPORT_PERIOD", value_parser = positive_duration)]
    pub report_period: Duration,

    /// Flags of the probes
    #[command(flatten)]
    pub probes: ProbeArgs,

    /// Print a JSON object per process and period
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}
