//! Flags of `simulate`.

use std::time::Duration;

use clap::Args;

use crate::config::{ConnectionArgs, Speed, duration, positive_duration};
use crate::job::fault::{Fault, share};
use crate::job::layout::{Layout, Mesh};
use crate::job::steps::Pace;

pub(super) const EXAMPLES: &str = "\
Examples: a cluster of 10,240 ranks whose agents report every five seconds, for ten minutes:

  fleet-agent simulate --endpoint http://localhost:4317 --cluster load \\
      --nodes 1280 --ranks-per-node 8 --interval 5s --duration 10m

A pipeline of four stages in which rank 17's host is late by a fifth of the step for two minutes, and rank 3
stops for good after four:

  fleet-agent simulate --endpoint http://localhost:4317 --cluster drill --nodes 16 --ranks-per-node 8 \\
      --mesh 8x4x4 --step 500ms --duration 5m \\
      --fault host:rank=17,after=60s,for=120s,severity=20% --fault hang:rank=3,after=4m

Faults are KIND:rank=R,after=DURATION,for=DURATION,severity=SHARE. Kinds: host and device (one rank), node (its
whole node), network (its data parallel communicator), stage (its pipeline stage), uniform (every GPU), hang
(the rank stops). Severity is what a step takes longer, as a share of a healthy step. As in real agents,
blocks begin when the job's pattern has been seen, after 128 operations of the busiest communicator (16 steps).

Exit codes: 0 every point was acknowledged, 64 wrong flags, 69 points were lost or refused, 70 a defect.";

/// Flags of `simulate`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct SimulateArgs {
    /// Where Echo takes OTLP over gRPC, or `none` to send nothing; {shard} stands for the number of one of several (see --shards)
    #[arg(long, value_name = "URL", env = "FLEET_AGENT_ENDPOINT")]
    pub endpoint: String,

    /// Cluster to report as
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_CLUSTER")]
    pub cluster: String,

    /// Number of nodes, named node-0, node-1 and so on
    #[arg(long, value_name = "N", env = "FLEET_AGENT_NODES", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,

    /// Ranks of a node
    #[arg(long, value_name = "N", default_value_t = 8, env = "FLEET_AGENT_RANKS_PER_NODE", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks_per_node: u32,

    /// How often each agent sends, and how long a block of operations should last
    #[arg(long, value_name = "DURATION", default_value = "5s", env = "FLEET_AGENT_INTERVAL", value_parser = positive_duration)]
    pub interval: Duration,

    /// How long the job runs
    #[arg(long, value_name = "DURATION", default_value = "1m", env = "FLEET_AGENT_DURATION", value_parser = positive_duration)]
    pub duration: Duration,

    /// Agents of a node, which share its ranks, each with a connection of its own
    #[arg(long, value_name = "N", default_value_t = 1, env = "FLEET_AGENT_CONNECTIONS_PER_NODE", value_parser = clap::value_parser!(u32).range(1..))]
    pub connections_per_node: u32,

    /// What goes wrong, as often as needed; in the environment separated by semicolons
    #[arg(
        long = "fault",
        value_name = "FAULT",
        env = "FLEET_AGENT_FAULTS",
        value_delimiter = ';'
    )]
    pub faults: Vec<Fault>,

    /// Tensor, pipeline and data parallel ranks, such as 8x4x40 [default: the ranks of a node, 1, the nodes]
    #[arg(long, value_name = "TPxPPxDP", env = "FLEET_AGENT_MESH")]
    pub mesh: Option<Mesh>,

    /// Communicators of a rank: data parallel, then tensor parallel, then one over all ranks [default: all that the mesh has]
    #[arg(long, value_name = "N", env = "FLEET_AGENT_COMMS", value_parser = clap::value_parser!(u32).range(1..=3))]
    pub comms: Option<u32>,

    /// How long a healthy step lasts
    #[arg(long, value_name = "DURATION", default_value = "1s", env = "FLEET_AGENT_STEP", value_parser = step)]
    pub step: Duration,

    /// How much what a healthy rank takes for its own work varies from step to step
    #[arg(long, value_name = "SHARE", default_value = "2%", env = "FLEET_AGENT_NOISE", value_parser = share)]
    pub noise: f64,

    /// Where the noise begins: the same seed makes the same job
    #[arg(long, value_name = "N", default_value_t = 1, env = "FLEET_AGENT_SEED")]
    pub seed: u64,

    /// Model of the GPUs to report
    #[arg(long, value_name = "NAME", env = "FLEET_AGENT_GPU_MODEL")]
    pub gpu_model: Option<String>,

    /// Let all agents send in the same moment, instead of spread over the interval
    #[arg(long, env = "FLEET_AGENT_BURST")]
    pub burst: bool,

    /// How many times as fast as the clock the job runs, or `max`; at max agents wait for room instead of dropping
    #[arg(long, value_name = "X", default_value = "1", env = "FLEET_AGENT_SPEED")]
    pub speed: Speed,

    /// Points that may wait to be sent, per agent; further ones are dropped and counted
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4000,
        env = "FLEET_AGENT_QUEUE_POINTS"
    )]
    pub queue_points: usize,

    /// How long to try a batch again, from its first failure on, before giving up its agent
    #[arg(long, value_name = "DURATION", default_value = "60s", env = "FLEET_AGENT_GIVE_UP_AFTER", value_parser = duration)]
    pub give_up_after: Duration,

    /// How the connections are secured
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Print the summary as JSON
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}

impl SimulateArgs {
    /// The job that the flags describe, or what does not fit together.
    pub fn layout(&self) -> Result<Layout, String> {
        let nodes = (self.nodes, self.ranks_per_node);
        let layout = Layout::new(nodes, self.mesh, self.comms)?;
        if self.connections_per_node > self.ranks_per_node {
            return Err(format!(
                "--connections-per-node {} leaves agents without a rank: give at most --ranks-per-node {}",
                self.connections_per_node, self.ranks_per_node
            ));
        }
        for fault in &self.faults {
            fault.check(&layout)?;
        }
        Ok(layout)
    }

    /// How the job runs.
    pub fn pace(&self) -> Pace {
        Pace {
            step_ms: self.step.as_secs_f64() * 1e3,
            noise: self.noise,
            seed: self.seed,
        }
    }
}

/// Agents take a synchronisation of less than half a millisecond for none.
const SHORTEST_STEP: Duration = Duration::from_millis(2);

fn step(text: &str) -> Result<Duration, String> {
    let parsed = duration(text)?;
    let is_long_enough = parsed >= SHORTEST_STEP;
    is_long_enough
        .then_some(parsed)
        .ok_or_else(|| "give a duration of at least 2ms".to_owned())
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
    fn what_does_not_fit_together_is_said_before_anything_is_sent() {
        for (flags, said) in [
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
            (["--noise", "much"], "give a share"),
        ] {
            let error = parse(&flags).and_then(|args| args.layout().map(|_| ()));
            let error = error.unwrap_err();
            assert!(error.contains(said), "{flags:?}: {error}");
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
