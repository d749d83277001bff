//! Flags of `simulate`.

use std::time::Duration;

use clap::Args;

use crate::config::{ConnectionArgs, Speed, duration, positive_duration};
use crate::job::fault::{Fault, parse_share};
use crate::job::layout::{Layout, Mesh};
use crate::job::steps::JobParams;

pub(super) const EXAMPLES: &str = "\
Examples: a cluster of 10,240 ranks whose agents report every five seconds, for ten minutes:

  fleet-agent simulate --endpoint http://localhost:4317 --cluster load \\
      --nodes 1280 --ranks-per-node 8 --interval 5s --duration 10m

A pipeline of four stages in which the host of rank 17 is late by a fifth of the step for two \
minutes, and rank 3 hangs after four minutes:

  fleet-agent simulate --endpoint http://localhost:4317 --cluster drill \\
      --nodes 16 --ranks-per-node 8 --mesh 8x4x4 --step 500ms --duration 5m \\
      --fault host:rank=17,after=60s,for=120s,severity=20% \\
      --fault hang:rank=3,after=4m

A fault is KIND:rank=R,after=DURATION,for=DURATION,severity=SHARE. Kinds: host and device (one rank), \
node (all ranks of its node), network (its data parallel communicator), stage (its pipeline stage), \
uniform (every GPU), hang (the rank stops). Severity is the time added to a step, as a share of a \
healthy step. As with real agents, blocks begin once the job's pattern is known, after 128 operations \
of the busiest communicator (16 steps).

Exit codes: 0 every point was acknowledged, 64 invalid flags, 69 points were lost or refused, 70 \
internal error.";

/// Flags of `simulate`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct SimulateArgs {
    /// OTLP/gRPC endpoint of Echo, or `none` to send nothing; {shard} is replaced by the shard's
    /// number (see --shards)
    #[arg(long, value_name = "URL", env = "FLEET_AGENT_ENDPOINT")]
    pub endpoint: String,

    /// Cluster name to report
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_CLUSTER")]
    pub cluster: String,

    /// Number of nodes, named node-0, node-1 and so on
    #[arg(long, value_name = "N", env = "FLEET_AGENT_NODES", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,

    /// Ranks per node
    #[arg(long, value_name = "N", default_value_t = 8, env = "FLEET_AGENT_RANKS_PER_NODE", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks_per_node: u32,

    /// Report interval of each agent, and target duration of a block of operations
    #[arg(long, value_name = "DURATION", default_value = "5s", env = "FLEET_AGENT_INTERVAL", value_parser = positive_duration)]
    pub interval: Duration,

    /// Duration of the job
    #[arg(long, value_name = "DURATION", default_value = "1m", env = "FLEET_AGENT_DURATION", value_parser = positive_duration)]
    pub duration: Duration,

    /// Agents per node, which share its ranks; each has its own connection
    #[arg(long, value_name = "N", default_value_t = 1, env = "FLEET_AGENT_CONNECTIONS_PER_NODE", value_parser = clap::value_parser!(u32).range(1..))]
    pub connections_per_node: u32,

    /// Fault to inject; can be given several times, and is separated by semicolons in the
    /// environment
    #[arg(
        long = "fault",
        value_name = "FAULT",
        env = "FLEET_AGENT_FAULTS",
        value_delimiter = ';'
    )]
    pub faults: Vec<Fault>,

    /// Tensor, pipeline and data parallel sizes, such as 8x4x40 [default: ranks per node, 1, nodes]
    #[arg(long, value_name = "TPxPPxDP", env = "FLEET_AGENT_MESH")]
    pub mesh: Option<Mesh>,

    /// Communicators per rank: data parallel, then tensor parallel, then one over all ranks
    /// [default: all that the mesh has]
    #[arg(long, value_name = "N", env = "FLEET_AGENT_COMMS", value_parser = clap::value_parser!(u32).range(1..=3))]
    pub comms: Option<u32>,

    /// Duration of a healthy step
    #[arg(long, value_name = "DURATION", default_value = "1s", env = "FLEET_AGENT_STEP", value_parser = step)]
    pub step: Duration,

    /// Variation of a healthy rank's own work from step to step
    #[arg(long, value_name = "SHARE", default_value = "2%", env = "FLEET_AGENT_NOISE", value_parser = parse_share)]
    pub noise: f64,

    /// Seed of the noise: the same seed generates the same job
    #[arg(long, value_name = "N", default_value_t = 1, env = "FLEET_AGENT_SEED")]
    pub seed: u64,

    /// GPU model to report
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_GPU_MODEL")]
    pub gpu_model: Option<String>,

    /// Make all agents send at the same moment instead of spread over the interval
    #[arg(long, env = "FLEET_AGENT_BURST")]
    pub burst: bool,

    /// Speed relative to wall time, or `max`; at max a full queue blocks its agent instead of
    /// dropping points
    #[arg(long, value_name = "X", default_value = "1", env = "FLEET_AGENT_SPEED")]
    pub speed: Speed,

    /// Maximum number of points queued per agent; further points are dropped and counted
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4000,
        env = "FLEET_AGENT_QUEUE_POINTS"
    )]
    pub queue_points: usize,

    /// Retry a batch for this long after its first failure, then stop its agent
    #[arg(long, value_name = "DURATION", default_value = "60s", env = "FLEET_AGENT_GIVE_UP_AFTER", value_parser = duration)]
    pub give_up_after: Duration,

    /// TLS and token of the connections
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Print the summary as JSON
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}

impl SimulateArgs {
    /// Layout of the job; fails when flags contradict each other.
    pub fn layout(&self) -> Result<Layout, String> {
        let layout = Layout::new(self.nodes, self.ranks_per_node, self.mesh, self.comms)?;
        if self.connections_per_node > self.ranks_per_node {
            return Err(format!(
                "--connections-per-node {} leaves agents without a rank: use at most --ranks-per-node {}",
                self.connections_per_node, self.ranks_per_node
            ));
        }
        for fault in &self.faults {
            fault.check(&layout)?;
        }
        Ok(layout)
    }

    /// Parameters of the job.
    pub fn job_params(&self) -> JobParams {
        JobParams {
            step_ms: self.step.as_secs_f64() * 1e3,
            noise: self.noise,
            seed: self.seed,
        }
    }
}

/// Shortest step: agents ignore a synchronization of less than half a millisecond.
const SHORTEST_STEP: Duration = Duration::from_millis(2);

fn step(text: &str) -> Result<Duration, String> {
    let parsed = duration(text)?;
    let is_long_enough = parsed >= SHORTEST_STEP;
    is_long_enough
        .then_some(parsed)
        .ok_or_else(|| "expected a duration of at least 2ms".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::{Cli, Command};

    fn parse(extra: &[&str]) -> Result<SimulateArgs, String> {
        let required = "fleet-agent simulate --endpoint e --cluster c --nodes 4";
        let words = required.split(' ').chain(extra.iter().copied());
        match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Command::Simulate(args)) => Ok(*args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn contradictory_flags_are_refused_before_anything_is_sent() {
        for (flags, expected) in [
            (["--mesh", "8x8x8"], "512 ranks, but 4 nodes of 8 have 32"),
            (["--comms", "4"], "4"),
            (
                ["--connections-per-node", "9"],
                "at most --ranks-per-node 8",
            ),
            (["--fault", "host:rank=32,severity=1%"], "names rank 32"),
            (["--fault", "host:rank=1"], "severity=20%"),
            (["--step", "1ms"], "at least 2ms"),
            (["--interval", "0s"], "above 0"),
            (["--noise", "much"], "expected a share"),
        ] {
            let error = parse(&flags).and_then(|args| args.layout().map(|_| ()));
            let error = error.unwrap_err();
            assert!(error.contains(expected), "{flags:?}: {error}");
        }
    }

    #[test]
    fn faults_can_be_given_several_times() {
        let first = "host:rank=17,after=60s,for=120s,severity=20%";
        let args = parse(&["--fault", first, "--fault", "hang:rank=3"]).unwrap();
        assert_eq!(args.faults.len(), 2);
        assert!(args.layout().is_ok());
    }
}
