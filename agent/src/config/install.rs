//! Flags of `install-profiler`.

use std::path::PathBuf;

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Example: make the plugin available to the containers of this host, which mount the directory and set \
NCCL_PROFILER_PLUGIN=/opt/fleet-echo/libfleet_nccl_profiler.so:

  fleet-agent install-profiler /opt/fleet-echo

Exit codes: 0 installed, 64 invalid flags, 66 plugin not found, 73 directory not writable.";

/// Flags of `install-profiler`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct InstallArgs {
    /// Directory to copy the plugin to; created if it does not exist
    #[arg(value_name = "DIR", env = "FLEET_AGENT_PROFILER_DIR")]
    pub dir: PathBuf,

    /// Plugin to copy [default: the one installed with this program]
    #[arg(long, value_name = "FILE", env = "FLEET_AGENT_PLUGIN")]
    pub plugin: Option<PathBuf>,
}
