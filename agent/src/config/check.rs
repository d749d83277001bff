//! Flags of `check`.

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Example: before installing the agent, as the user that it will run as:

  fleet-agent check

Every line is OK, DEGRADED (the agent runs, but collects less) or MISSING (the agent cannot run), with \
advice where something is missing. The check attaches probes to the libraries of the running jobs and \
removes them again; the jobs keep running.

Exit codes: 0 the agent can run, even degraded, 64 invalid flags, 77 the agent cannot run.";

/// Flags of `check`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CheckArgs {
    /// Print the findings as JSON
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}
