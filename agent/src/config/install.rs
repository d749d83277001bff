//! Flags of `install-profiler`.

use std::path::PathBuf;

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Example: offer the plugin to the containers of this host, which mount the folder and say in their environment
NCCL_PROFILER_PLUGIN=/opt/fleet-echo/libfleet_nccl_profiler.so:

  fleet-agent install-profiler /opt/fleet-echo

Exit codes: 0 installed, 64 wrong flags, 66 no plugin is there, 73 the folder cannot be written.";

/// Flags of `install-profiler`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct InstallArgs {
    /// Folder to copy the plugin to; made when it does not exist
    #[arg(value_name = "DIR", env = "FLEET_AGENT_PROFILER_DIR")]
    pub dir: PathBuf,

    /// The plugin [default: the one that came with this program]
    #[arg(long, value_name = "FILE", env = "FLEET_AGENT_PLUGIN")]
    pub plugin: Option<PathBuf>,
}
