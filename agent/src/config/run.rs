//! Flags of `run`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fleet_agent_bpf::programs::Mechanism;
use fleet_agent_core::pipeline::BlockRule;
use fleet_agent_sources::watch::{CountOptions, RESCAN, WatchSettings};

use crate::config::{SenderArgs, block_ops, positive_duration};

/// Where the kernel keeps BPF objects that outlive their process.
const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf/fleet-agent";

pub(super) const EXAMPLES: &str = "\
Examples: watch every GPU job of this host, those that run and those to come, and report to Echo:

  fleet-agent run --endpoint http://echo:4317 --cluster prod

The same, and count kernel launches and copies besides, which costs each of them half a microsecond:

  fleet-agent run --endpoint http://echo:4317 --cluster prod --count launches,copies

Several Echos share the clusters: three of a StatefulSet, of which the agent takes the one for its cluster:

  fleet-agent run --cluster prod --shards 3 \\
      --endpoint https://fleet-echo-{shard}.fleet-echo-pods.fleet-echo.svc:4317

The jobs need no change and no restart. It takes root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH and
CAP_CHECKPOINT_RESTORE; `fleet-agent check` says what this host allows. SIGTERM sends what waits and takes the probes out.

Exit codes: 0 stopped as asked, 64 wrong flags, or an endpoint, address or folder of them that cannot be used,
75 another agent watches this host, 77 the kernel does not let it watch.";

/// What can be counted besides collectives and waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Counted {
    /// Kernel launches
    Launches,
    /// Bytes copied between host and device, by direction
    Copies,
}

/// How functions are probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Attach {
    /// The best that the kernel has
    #[default]
    Auto,
    /// One link for all functions of a file (Linux 6.6 and later)
    Multi,
    /// One perf event per function; takes `CAP_SYS_ADMIN`
    Perf,
}

/// Flags that say what is probed, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct ProbeArgs {
    /// What to count besides collectives and waits, which costs each launch or copy half a microsecond
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        env = "FLEET_AGENT_COUNT"
    )]
    pub count: Vec<Counted>,

    /// How to probe
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        env = "FLEET_AGENT_ATTACH"
    )]
    pub attach: Attach,
}

impl ProbeArgs {
    /// How to watch functions alone, so that no probe outlives the agent; `min_wait` is how long a wait has to last to be told.
    pub fn settings(&self, min_wait: Duration) -> WatchSettings {
        WatchSettings {
            count_options: CountOptions {
                copies: self.count.contains(&Counted::Copies),
                launches: self.count.contains(&Counted::Launches),
            },
            min_wait_ns: u64::try_from(min_wait.as_nanos()).unwrap_or(u64::MAX),
            mechanism: match self.attach {
                Attach::Auto => None,
                Attach::Multi => Some(Mechanism::UprobeMulti),
                Attach::Perf => Some(Mechanism::PerfEvent),
            },
            without_host: true,
            rescan: RESCAN,
            pins: None,
            nccl_socket: None,
        }
    }
}

/// Flags that say what is watched, and how.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct WatchArgs {
    /// What is probed, and how
    #[command(flatten)]
    pub probes: ProbeArgs,

    /// Leave out what the kernel does to the processes: time off the CPU, page allocations, block I/O, TCP
    #[arg(long, env = "FLEET_AGENT_WITHOUT_KERNEL")]
    pub without_kernel: bool,

    /// Folder of a BPF file system in which probes stay when the agent is killed, so that the next one goes on where it was;
    /// `none` lets them go with it
    #[arg(long, value_name = "DIR", default_value = BPF_FILE_SYSTEM, env = "FLEET_AGENT_PIN")]
    pub pin: PathBuf,

    /// Socket that NCCL profiler plugins send to where no probe can stand in them (`FLEET_NCCL_SOCKET` there)
    #[arg(long, value_name = "PATH", env = "FLEET_AGENT_NCCL_SOCKET")]
    pub nccl_socket: Option<PathBuf>,

    /// Leave the probes in that folder at the end, too, for an agent that starts in place of this one
    #[arg(long, env = "FLEET_AGENT_KEEP_PROBES")]
    pub keep_probes: bool,
}

impl WatchArgs {
    /// How to watch; `min_wait` is how long a wait has to last to be told.
    pub fn settings(&self, min_wait: Duration) -> WatchSettings {
        WatchSettings {
            without_host: self.without_kernel,
            nccl_socket: self.nccl_socket.clone(),
            pins: (self.pin.as_os_str() != "none").then(|| self.pin.clone()),
            ..self.probes.settings(min_wait)
        }
    }
}

/// Flags of `run`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RunArgs {
    /// Where Echo takes OTLP over gRPC, or `none` to send nothing; {shard} stands for the number of one of several (see --shards)
    #[arg(long, value_name = "URL", env = "FLEET_AGENT_ENDPOINT")]
    pub endpoint: String,

    /// Cluster to report as
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_CLUSTER")]
    pub cluster: String,

    /// Node to report as [default: the name of this host]
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_NODE")]
    pub node: Option<String>,

    /// Job to report as [default: what the launcher says, else the communicator that spans the job]
    #[arg(long, value_name = "ID", env = "FLEET_AGENT_JOB")]
    pub job: Option<String>,

    /// Model of the GPUs [default: what the driver says]
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_GPU_MODEL")]
    pub gpu_model: Option<String>,

    /// How often to report, and how long a block of operations should last; jobs of up to 16 ranks have blocks of about 2s at most
    #[arg(long, value_name = "DURATION", default_value = "5s", env = "FLEET_AGENT_INTERVAL", value_parser = positive_duration)]
    pub interval: Duration,

    /// Operations per block, a power of two, in place of what --interval asks for
    #[arg(long, value_name = "N", env = "FLEET_AGENT_BLOCK_OPS", value_parser = block_ops)]
    pub block_ops: Option<u64>,

    /// Unix socket that tells remediation hooks, as lines of JSON, when a rank begins or ceases to be a straggler
    #[arg(long, value_name = "PATH", env = "FLEET_AGENT_HOOK_SOCKET")]
    pub hook_socket: Option<PathBuf>,

    /// Address for Prometheus to read how this agent is doing, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDR", env = "FLEET_AGENT_METRICS_LISTEN")]
    pub metrics_listen: Option<SocketAddr>,

    /// File with the token that Prometheus has to show (`Authorization: Bearer TOKEN`), read again for each scrape; needed
    /// where --metrics-listen can be reached from other hosts
    #[arg(long, value_name = "PATH", env = "FLEET_AGENT_METRICS_TOKEN_FILE")]
    pub metrics_token_file: Option<PathBuf>,

    /// What is watched, and how
    #[command(flatten)]
    pub watch: WatchArgs,

    /// How points are sent
    #[command(flatten)]
    pub sender: SenderArgs,
}

impl RunArgs {
    /// How blocks are cut.
    pub fn block_rule(&self) -> BlockRule {
        BlockRule {
            target_ns: self.interval.as_secs_f64() * 1e9,
            exponent: self.block_ops.map(u64::trailing_zeros),
        }
    }
}
