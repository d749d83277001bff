//! Flags of `check`.

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Example: before the agent is installed, as the user that it will be:

  fleet-agent check

Every line is OK, DEGRADED (the agent runs, and what it cannot see is named) or MISSING (it cannot
run), and says what to do. To find out, probes are put at the libraries of the jobs that run, and
taken out again: the jobs go on.

Exit codes: 0 the agent can run, even degraded, 64 wrong flags, 77 it cannot.";

/// Flags of `check`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CheckArgs {
    /// Print the findings as JSON
    #[arg(long, env = "FLEET_AGENT_JSON")]
    pub json: bool,
}
