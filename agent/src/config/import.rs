//! Flags of `import`.

use std::path::PathBuf;

use clap::Args;

use crate::config::connection::{ConnectionArgs, NO_ENDPOINT};

pub(super) const EXAMPLES: &str = "\
Examples: who did not join a hanging operation, from the dumps of PyTorch's Flight Recorder:

  fleet-agent import /tmp/dumps

Send the iterations of a job that was traced with the PyTorch profiler to Echo:

  fleet-agent import traces/ --endpoint http://localhost:4317 --cluster lab

Give one file per rank, or a folder with them. Formats are recognised by content: PyTorch profiler \
(Kineto) traces, PyTorch Flight Recorder dumps (pickle or JSON), NCCL Inspector lines, exports of \
Nsight Systems (SQLite), operations of StragglerAnalysis (Parquet), tables of call times (CSV); and \
one answer of NCCL's RAS subsystem, or logs with lines of PyTorch's watchdog; each but databases may \
be gzipped. Of several folders in a folder give one. Nothing in a pickle is run. The times of the \
points end now. An instance names a hang after 30 s without progress, so the progress of its ranks \
is sent three times within 35 s.

Exit codes: 0 imported, 64 invalid flags, 65 no file of a known format, files that do not belong \
together, no verdict from them, or all points rejected, 66 a file cannot be read, 69 endpoint \
unreachable.";

/// Flags of `import`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ImportArgs {
    /// Files, or folders with one file per rank
    #[arg(required = true, value_name = "PATH", env = "FLEET_AGENT_FILES")]
    pub paths: Vec<PathBuf>,

    /// OTLP/gRPC endpoint of Echo, or `none` to print the findings only
    #[arg(
        long,
        value_name = "URL",
        default_value = NO_ENDPOINT,
        env = "FLEET_AGENT_ENDPOINT"
    )]
    pub endpoint: String,

    /// Cluster name to report
    #[arg(
        long,
        value_name = "NAME",
        default_value = "import",
        env = "FLEET_AGENT_CLUSTER"
    )]
    pub cluster: String,

    /// Job name to report [default: none]
    #[arg(long, value_name = "ID", env = "FLEET_AGENT_JOB")]
    pub job: Option<String>,

    /// GPU model to report [default: the model in the files]
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_GPU_MODEL")]
    pub gpu_model: Option<String>,

    /// Report a hang once, as of this many seconds ago, and not at intervals for 35 s
    #[arg(long, value_name = "SECONDS", env = "FLEET_AGENT_HANG_AGE")]
    pub hang_age: Option<u32>,

    /// TLS and token of the connections
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Print the findings as JSON
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}
