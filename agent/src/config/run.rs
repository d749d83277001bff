//! Flags of `run`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fleet_agent_bpf::programs::Mechanism;
use fleet_agent_core::pipeline::BlockRule;
use fleet_agent_sources::watch::{CountOptions, Detail, RESCAN, WatchSettings};

use crate::config::{
    HealthArgs, RasArgs, SenderArgs, StackSamplingArgs, block_ops, positive_duration,
};

/// Directory of the BPF file system where probes are pinned by default.
const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf/fleet-agent";

pub(super) const EXAMPLES: &str = "\
Examples: watch every GPU job of this host, running or started later, and report to Echo:

  fleet-agent run --endpoint http://echo:4317 --cluster prod

Also count kernel launches and copies, which costs each of them half a microsecond:

  fleet-agent run --endpoint http://echo:4317 --cluster prod \\
      --count launches,copies

Report to a sharded Echo, a StatefulSet of three; the agent selects the shard of its cluster:

  fleet-agent run --cluster prod --shards 3 \\
      --endpoint https://fleet-echo-{shard}.fleet-echo-pods.fleet-echo.svc:4317

Jobs need no change and no restart. The agent needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, \
CAP_DAC_READ_SEARCH and CAP_CHECKPOINT_RESTORE; `fleet-agent check` shows what this host allows. On \
SIGTERM it sends what is queued and removes its probes.

Exit codes: 0 stopped by a signal, 64 invalid flags, or an endpoint, address or directory that cannot \
be used, 75 another agent watches this host, 77 not permitted by the kernel.";

/// Calls that can be counted besides collectives and waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Counted {
    /// Kernel launches
    Launches,
    /// Bytes copied between host and device, by direction
    Copies,
}

/// Processes whose calls are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Observed {
    /// Those that call NCCL or RCCL
    Nccl,
    /// Also those that call CUDA or HIP only, at most 128 of them; they have no rank and are never
    /// called stragglers
    #[default]
    Gpu,
}

/// Mechanism that attaches probes to functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Attach {
    /// The best that the kernel supports
    #[default]
    Auto,
    /// One `uprobe_multi` link for all functions of a file (Linux 6.6 and later)
    Multi,
    /// One perf event per function; needs `CAP_SYS_ADMIN`
    Perf,
}

/// Flags that select what is probed, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct ProbeArgs {
    /// Calls to count besides collectives, waits and rare ones; costs each launch or copy half a
    /// microsecond
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        env = "FLEET_AGENT_COUNT"
    )]
    pub count: Vec<Counted>,

    /// Calls to measure, with percentiles of their durations, and the sizes of sampled launches;
    /// costs each launch or copy two microseconds
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        env = "FLEET_AGENT_MEASURE"
    )]
    pub measure: Vec<Counted>,

    /// Mechanism to attach probes with
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        env = "FLEET_AGENT_ATTACH"
    )]
    pub attach: Attach,
}

impl ProbeArgs {
    /// Returns how calls of a kind are handled.
    fn detail(&self, calls: Counted) -> Detail {
        if self.measure.contains(&calls) {
            Detail::Measure
        } else if self.count.contains(&calls) {
            Detail::Count
        } else {
            Detail::Off
        }
    }

    /// Settings for probes that end with the agent and without kernel evidence; waits shorter than
    /// `min_wait` are not reported.
    pub fn settings(&self, min_wait: Duration) -> WatchSettings {
        WatchSettings {
            count_options: CountOptions {
                copies: self.detail(Counted::Copies),
                launches: self.detail(Counted::Launches),
                all_processes: false,
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

/// Flags that select what is watched, and how.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct WatchArgs {
    /// Flags of the probes
    #[command(flatten)]
    pub probes: ProbeArgs,

    /// Processes whose calls are measured
    #[arg(
        long,
        value_name = "WHICH",
        default_value = "gpu",
        env = "FLEET_AGENT_PROCESSES"
    )]
    pub processes: Observed,

    /// Do not collect kernel evidence: time off the CPU, page allocations, block I/O, TCP
    #[arg(long, env = "FLEET_AGENT_WITHOUT_KERNEL")]
    pub without_kernel: bool,

    /// Directory of a BPF file system in which probes stay pinned when the agent is killed, so that
    /// the next agent continues without a gap; `none` removes them with the agent [default:
    /// /sys/fs/bpf/fleet-agent, or `none` where no BPF file system is mounted]
    #[arg(long, value_name = "DIR", env = "FLEET_AGENT_PIN")]
    pub pin: Option<PathBuf>,

    /// Unix socket on which to receive records from NCCL profiler plugins that cannot be probed
    /// (set `FLEET_NCCL_SOCKET` in the job)
    #[arg(long, value_name = "PATH", env = "FLEET_AGENT_NCCL_SOCKET")]
    pub nccl_socket: Option<PathBuf>,

    /// Leave pinned probes in place on exit, for the agent that replaces this one
    #[arg(long, env = "FLEET_AGENT_KEEP_PROBES")]
    pub keep_probes: bool,
}

impl WatchArgs {
    /// Settings of the watch; waits shorter than `min_wait` are not reported.
    pub fn settings(&self, min_wait: Duration) -> WatchSettings {
        let pin = self.pin.clone();
        let folder = pin.unwrap_or_else(|| PathBuf::from(BPF_FILE_SYSTEM));
        let probes = self.probes.settings(min_wait);
        WatchSettings {
            count_options: CountOptions {
                all_processes: self.processes == Observed::Gpu,
                ..probes.count_options
            },
            without_host: self.without_kernel,
            nccl_socket: self.nccl_socket.clone(),
            pins: (folder.as_os_str() != "none").then_some(folder),
            ..probes
        }
    }
}

/// Flags of `run`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RunArgs {
    /// OTLP/gRPC endpoint of Echo, or `none` to send nothing; {shard} is replaced by the shard's
    /// number (see --shards)
    #[arg(long, value_name = "URL", env = "FLEET_AGENT_ENDPOINT")]
    pub endpoint: String,

    /// Cluster name to report
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_CLUSTER")]
    pub cluster: String,

    /// Node name to report [default: the name of this host]
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_NODE")]
    pub node: Option<String>,

    /// Job name to report [default: the launcher's job name, else the communicator that spans the
    /// job]
    #[arg(long, value_name = "ID", env = "FLEET_AGENT_JOB")]
    pub job: Option<String>,

    /// GPU model to report [default: the driver's name for it]
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_GPU_MODEL")]
    pub gpu_model: Option<String>,

    /// Report interval, and target duration of a block of operations; jobs of up to 16 ranks have
    /// blocks of about 2s at most
    #[arg(long, value_name = "DURATION", default_value = "5s", env = "FLEET_AGENT_INTERVAL", value_parser = positive_duration)]
    pub interval: Duration,

    /// Period of the reports about what processes lose time to
    #[arg(long, hide = true, value_name = "DURATION", default_value = "10s", env = "FLEET_AGENT_REPORT_PERIOD", value_parser = positive_duration)]
    pub report_period: Duration,

    /// Operations per block, a power of two, instead of --interval's target
    #[arg(long, value_name = "N", env = "FLEET_AGENT_BLOCK_OPS", value_parser = block_ops)]
    pub block_ops: Option<u64>,

    /// Queries to NCCL's RAS subsystem
    #[command(flatten)]
    pub ras: RasArgs,

    /// Sampling of the stacks of late ranks
    #[command(flatten)]
    pub stacks: StackSamplingArgs,

    /// Unix socket that notifies remediation hooks, in lines of JSON, when a rank becomes or ceases
    /// to be a straggler
    #[arg(long, value_name = "PATH", env = "FLEET_AGENT_HOOK_SOCKET")]
    pub hook_socket: Option<PathBuf>,

    /// Health of the host
    #[command(flatten)]
    pub health: HealthArgs,

    /// Address to serve metrics of the agent, the host and its GPU processes to Prometheus, such as
    /// 127.0.0.1:9464
    #[arg(long, value_name = "ADDR", env = "FLEET_AGENT_METRICS_LISTEN")]
    pub metrics_listen: Option<SocketAddr>,

    /// File with the bearer token that Prometheus must send (`Authorization: Bearer TOKEN`), read
    /// again for each scrape; required when --metrics-listen is reachable from other hosts
    #[arg(long, value_name = "PATH", env = "FLEET_AGENT_METRICS_TOKEN_FILE")]
    pub metrics_token_file: Option<PathBuf>,

    /// OTLP/gRPC endpoint of any receiver, such as an OpenTelemetry collector, to which metrics of
    /// the host and its GPU processes are sent every 10s
    #[arg(long, value_name = "URL", env = "FLEET_AGENT_METRICS_ENDPOINT")]
    pub metrics_endpoint: Option<String>,

    /// Flags of the watch
    #[command(flatten)]
    pub watch: WatchArgs,

    /// Flags of the sender
    #[command(flatten)]
    pub sender: SenderArgs,
}

impl RunArgs {
    /// Rule by which operations are divided into blocks.
    pub fn block_rule(&self) -> BlockRule {
        BlockRule {
            target_ns: self.interval.as_secs_f64() * 1e9,
            exponent: self.block_ops.map(u64::trailing_zeros),
        }
    }
}
