//! Flags of `run` about the health of the host, and flags of `straggler-check`.

use std::path::PathBuf;

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Example: ask the agent of this host, which runs with the same --health-socket, as \
node-problem-detector does:

  fleet-agent straggler-check --socket /run/fleet-agent/health.sock

Prints one line of at most 80 bytes. Which incidents count is decided by the actions of Echo \
(serve --actions), with a consumer `agents`.

Exit codes: 0 no rank of this host is a culprit, 1 at least one is, 2 unknown: the agent does not \
answer, or Echo makes no statement, 64 invalid flags.";

/// Flags about the health of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct HealthArgs {
    /// Unix socket that answers whether this host holds a culprit, for `straggler-check` and `NVRx`
    #[arg(long, value_name = "PATH", env = "FLEET_AGENT_HEALTH_SOCKET")]
    pub health_socket: Option<PathBuf>,

    /// Socket of `NVSentinel`'s platform connector, usually
    /// /var/run/nvsentinel/platform-connector.sock, to report culprits to, as events that are only
    /// stored
    #[arg(long, value_name = "PATH", env = "FLEET_AGENT_NVSENTINEL_SOCKET")]
    pub nvsentinel_socket: Option<PathBuf>,

    /// Permit `NVSentinel` to act on these events
    #[arg(
        long,
        requires = "nvsentinel_socket",
        env = "FLEET_AGENT_NVSENTINEL_EXECUTE"
    )]
    pub nvsentinel_execute: bool,
}

/// Flags of `straggler-check`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StragglerCheckArgs {
    /// Health socket of the agent
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/fleet-agent/health.sock",
        env = "FLEET_AGENT_HEALTH_SOCKET"
    )]
    pub socket: PathBuf,
}
