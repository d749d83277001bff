//! Cluster and time window of a query.

use clap::Args;

/// Cluster and time window of a query.
#[derive(Debug, Clone, Default, Args)]
pub struct ScopeArgs {
    /// Cluster [default: all]
    #[arg(
        short,
        long,
        value_name = "NAME",
        env = "FLEET_ECHO_CLUSTER",
        help_heading = "Cluster and time"
    )]
    pub cluster: Option<String>,
    /// Time window instead of --from and --to: `all`, or the last `15m`, `24h`, `7d`
    #[arg(
        short,
        long,
        value_name = "LENGTH",
        env = "FLEET_ECHO_WINDOW",
        help_heading = "Cluster and time"
    )]
    pub window: Option<String>,
    /// Start: RFC 3339, a date (UTC), Unix milliseconds or relative such as `now-15m` [default: 1h before
    /// the end]
    #[arg(
        long,
        value_name = "TIME",
        env = "FLEET_ECHO_FROM",
        help_heading = "Cluster and time"
    )]
    pub from: Option<String>,
    /// End, exclusive, in the same formats [default: now]
    #[arg(
        long,
        value_name = "TIME",
        env = "FLEET_ECHO_TO",
        help_heading = "Cluster and time"
    )]
    pub to: Option<String>,
}
