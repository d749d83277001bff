//! Flags and environment variables.

mod check;
mod connection;
mod explain;
mod export;
mod health;
mod help;
mod import;
mod install;
mod ras;
mod record;
mod run;
mod sender;
mod simulate;
mod stacks;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use fleet_agent_core::block_size::MAX_EXPONENT;
use fleet_completion::{CompletionArgs, ManArgs};
use jiff::{SignedDuration, Timestamp};

pub use crate::config::check::CheckArgs;
pub use crate::config::connection::{ConnectionArgs, NO_ENDPOINT, Shard};
pub use crate::config::explain::{ExplainArgs, TraceArgs};
pub use crate::config::export::ExportArgs;
pub use crate::config::health::{HealthArgs, StragglerCheckArgs};
pub use crate::config::help::command_line;
pub use crate::config::import::ImportArgs;
pub use crate::config::install::InstallArgs;
pub use crate::config::ras::{RasArgs, RasMode};
pub use crate::config::record::RecordArgs;
pub use crate::config::run::{Attach, Counted, Observed, ProbeArgs, RunArgs, WatchArgs};
pub use crate::config::sender::SenderArgs;
pub use crate::config::simulate::SimulateArgs;
pub use crate::config::stacks::{CoreShare, StackSamplingArgs, StacksArgs};

/// Watches the GPU jobs of a host and reports to Echo which rank holds the others back.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "fleet-agent", version, max_term_width = 100)]
pub struct Cli {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands of the agent.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum Command {
    /// Watch the GPU jobs of this host and report to Echo
    #[command(after_help = run::EXAMPLES)]
    Run(Box<RunArgs>),
    /// Check what this host allows the agent, and what is missing
    #[command(after_help = check::EXAMPLES)]
    Check(CheckArgs),
    /// Report whether this host holds back a job, as a plugin of node-problem-detector
    #[command(after_help = health::EXAMPLES)]
    StragglerCheck(StragglerCheckArgs),
    /// Record the GPU jobs of this host to a file that can be replayed
    #[command(after_help = record::EXAMPLES)]
    Record(Box<RecordArgs>),
    /// Explain what the processes of this host, or of recordings, lose time to
    #[command(after_help = explain::EXPLAIN_EXAMPLES)]
    Explain(Box<ExplainArgs>),
    /// Show the calls of processes and what they lose time to, while they run
    #[command(after_help = explain::TRACE_EXAMPLES)]
    Trace(Box<TraceArgs>),
    /// Show where the threads of a process spend their time: Python lines and native functions
    #[command(after_help = stacks::EXAMPLES)]
    Stacks(StacksArgs),
    /// Send recorded jobs to Echo as if they ran now
    #[command(after_help = EXAMPLE)]
    Replay(Box<ReplayArgs>),
    /// Read traces and dumps of other tools: which rank was late, or did not join
    #[command(after_help = import::EXAMPLES)]
    Import(Box<ImportArgs>),
    /// Simulate the agents of a whole cluster in one process, without GPUs
    #[command(after_help = simulate::EXAMPLES)]
    Simulate(Box<SimulateArgs>),
    /// Convert recordings to traces that other tools open
    #[command(after_help = export::EXAMPLES)]
    Export(ExportArgs),
    /// Copy the NCCL profiler plugin to a directory that the jobs of this host can mount
    #[command(after_help = install::EXAMPLES)]
    InstallProfiler(InstallArgs),
    /// Print a completion script for a shell
    #[command(after_help = fleet_completion::examples!("fleet-agent"))]
    Completion(CompletionArgs),
    /// Write man pages
    #[command(hide = true)]
    Man(ManArgs),
}

const EXAMPLE: &str = "\
Example: replay a recorded job of four ranks, each on a node of its own with its own clock error, \
ten times as fast as it ran:

  fleet-agent replay testdata/recordings/host-sleep-rank2.jsonl.gz \\
      --endpoint http://localhost:4317 --cluster demo \\
      --node-per-rank --clock-skew 10s --speed 10

With TLS and a token: --endpoint https://HOST:4317 --tls-ca FILE --token-file FILE.

Every rank also judges itself, against the latest policy from Echo for its cohort or else against \
its own history. Each change of its verdict is logged and sent to Echo as a log record; --json \
counts the changes by mode.

Exit codes: 0 sent, 64 invalid flags, 65 damaged file or not a recording, 69 endpoint unreachable.";

/// Flags of `replay`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct ReplayArgs {
    /// Recordings, replayed one after the other
    #[arg(required = true, value_name = "FILE", env = "FLEET_AGENT_FILES")]
    pub files: Vec<PathBuf>,

    /// OTLP/gRPC endpoint of Echo, or `none` to send nothing; {shard} is replaced by the shard's
    /// number (see --shards)
    #[arg(long, value_name = "URL", env = "FLEET_AGENT_ENDPOINT")]
    pub endpoint: String,

    /// Cluster name to report
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_CLUSTER")]
    pub cluster: String,

    /// Node name to report [default: node-0, or node-R with --only-rank R]
    #[arg(
        long,
        value_name = "NAME",
        env = "FLEET_AGENT_NODE",
        conflicts_with = "node_per_rank"
    )]
    pub node: Option<String>,

    /// Replay every rank as a node of its own, named node-RANK, with its own agent and connection
    #[arg(long, env = "FLEET_AGENT_NODE_PER_RANK")]
    pub node_per_rank: bool,

    /// Replay only this rank, as a node of its own
    #[arg(long, value_name = "RANK", env = "FLEET_AGENT_ONLY_RANK")]
    pub only_rank: Option<u32>,

    /// Maximum clock error of a node: rank 0 is behind by all of it, rank 1 ahead by a third, rank
    /// 2 behind by a third, rank 3 ahead by all of it, and so on
    #[arg(long, value_name = "DURATION", default_value = "0s", env = "FLEET_AGENT_CLOCK_SKEW", value_parser = duration)]
    pub clock_skew: Duration,

    /// Start time of the first recording: an RFC 3339 time, or `now`
    #[arg(
        long,
        value_name = "TIME",
        default_value = "now",
        env = "FLEET_AGENT_START_AT"
    )]
    pub start_at: StartAt,

    /// Period of the reports about what processes lose time to
    #[arg(long, hide = true, value_name = "DURATION", default_value = "10s", env = "FLEET_AGENT_REPORT_PERIOD", value_parser = positive_duration)]
    pub report_period: Duration,

    /// Speed relative to the recording, or `max`
    #[arg(long, value_name = "X", default_value = "1", env = "FLEET_AGENT_SPEED")]
    pub speed: Speed,

    /// Target duration of a block of operations
    #[arg(long, value_name = "DURATION", default_value = "1s", env = "FLEET_AGENT_BLOCK_TARGET", value_parser = positive_duration)]
    pub block_target: Duration,

    /// Operations per block, a power of two, instead of --block-target
    #[arg(long, value_name = "N", env = "FLEET_AGENT_BLOCK_OPS", value_parser = block_ops)]
    pub block_ops: Option<u64>,

    /// Job name to report [default: the communicator that spans the job]
    #[arg(long, value_name = "ID", env = "FLEET_AGENT_JOB")]
    pub job: Option<String>,

    /// GPU model to report [default: the model in the recording]
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_GPU_MODEL")]
    pub gpu_model: Option<String>,

    /// Maximum number of points queued per node; the replay pauses when it is reached
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20_000,
        env = "FLEET_AGENT_QUEUE_POINTS"
    )]
    pub queue_points: usize,

    /// Retry a batch for this long after its first failure, then give up the node
    #[arg(long, value_name = "DURATION", default_value = "60s", env = "FLEET_AGENT_GIVE_UP_AFTER", value_parser = duration)]
    pub give_up_after: Duration,

    /// TLS and token of the connections
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Print the summary as JSON
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}

/// Start of a replay in wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// At the start of the agent.
    Now,
    /// At this time.
    At(Timestamp),
}

impl StartAt {
    /// Returns the time in Unix nanoseconds.
    pub fn unix_ns(self) -> i128 {
        match self {
            Self::Now => Timestamp::now().as_nanosecond(),
            Self::At(time) => time.as_nanosecond(),
        }
    }
}

impl FromStr for StartAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "now" {
            return Ok(Self::Now);
        }
        let time = text.parse().ok().map(Self::At);
        time.ok_or_else(|| "expected a time such as 2026-01-31T12:00:00Z, or now".to_owned())
    }
}

/// Speed of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// Multiple of the recorded speed.
    Times(f64),
    /// Limited only by the collector.
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            _ if text == "max" => Ok(Self::Max),
            Ok(times) if f64::is_finite(times) && times > 0.0 => Ok(Self::Times(times)),
            _ => Err("expected a number above 0, or max".to_owned()),
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text
        .parse::<SignedDuration>()
        .ok()
        .and_then(|signed| signed.try_into().ok());
    parsed.ok_or_else(|| "expected a duration such as 200ms, 10s or 1m".to_owned())
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|parsed| {
        let is_positive = parsed > Duration::ZERO;
        is_positive
            .then_some(parsed)
            .ok_or_else(|| "expected a duration above 0".to_owned())
    })
}

fn block_ops(text: &str) -> Result<u64, String> {
    let ops = text.parse::<u64>().ok();
    ops.filter(|ops| ops.is_power_of_two() && *ops <= 1 << MAX_EXPONENT)
        .ok_or_else(|| format!("expected a power of two up to {}", 1 << MAX_EXPONENT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use fleet_agent_sources::watch::Detail;

    fn parse(extra: &[&str]) -> Result<ReplayArgs, clap::Error> {
        let required = [
            "fleet-agent",
            "replay",
            "f",
            "--endpoint",
            "e",
            "--cluster",
            "c",
        ];
        match Cli::try_parse_from(required.iter().chain(extra))?.command {
            Command::Replay(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn clap_accepts_the_definition_of_the_flags() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_an_environment_variable() {
        let cli = Cli::command();
        // Shells and packages run these two, once.
        let is_generator =
            |command: &&clap::Command| matches!(command.get_name(), "completion" | "man");
        let commands = cli
            .get_subcommands()
            .filter(|command| !is_generator(command));
        let flags = commands.flat_map(clap::Command::get_arguments);
        for arg in flags.filter(|arg| arg.get_id() != "help") {
            let env = arg.get_env().and_then(|env| env.to_str());
            assert!(
                env.is_some_and(|env| env.starts_with("FLEET_AGENT_")),
                "{arg:?}"
            );
        }
    }

    #[test]
    fn values_are_checked() {
        for wrong in [
            ["--speed", "0"],
            ["--speed", "nan"],
            ["--block-ops", "48"],
            ["--block-ops", "2097152"],
            ["--block-target", "0s"],
            ["--clock-skew", "soon"],
            ["--start-at", "yesterday"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        let args = parse(&["--speed", "max", "--clock-skew", "10s", "--block-ops", "64"]).unwrap();
        assert_eq!((args.speed, args.block_ops), (Speed::Max, Some(64)));
        assert_eq!(args.clock_skew, Duration::from_secs(10));
    }

    #[test]
    fn a_recording_may_be_of_several_processes() {
        let flags = [
            "fleet-agent",
            "record",
            "f",
            "--pid",
            "7",
            "--pid",
            "8",
            "--count",
            "launches,copies",
        ];
        match Cli::try_parse_from(flags).unwrap().command {
            Command::Record(args) => {
                let settings = args.probes.settings(Duration::ZERO);
                assert_eq!((args.pid, args.duration), (vec![7, 8], None));
                let counted = settings.count_options;
                assert_eq!([counted.copies, counted.launches], [Detail::Count; 2]);
                assert_eq!((settings.min_wait_ns, settings.pins), (0, None));
            }
            other => panic!("{other:?}"),
        }
        assert!(Cli::try_parse_from(["fleet-agent", "record", "f", "--duration", "0s"]).is_err());
    }

    #[test]
    fn a_node_name_and_a_node_per_rank_exclude_each_other() {
        assert!(parse(&["--node", "n", "--node-per-rank"]).is_err());
        assert!(parse(&["--node", "n", "--only-rank", "2"]).is_ok());
    }
}
