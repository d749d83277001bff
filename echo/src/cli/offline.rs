//! Work on a database file that no Echo has open: `fleet-echo backup`, `export` and `repair`.

use std::path::PathBuf;

use clap::Args;

pub mod backup;
pub mod export;
pub mod repair;

/// Which database is meant, and how the outcome is printed.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// Database file, of an Echo that does not run
    #[arg(long, value_name = "PATH", env = "FLEET_ECHO_DB")]
    pub db: PathBuf,
    /// Print JSON
    #[arg(long, env = "FLEET_ECHO_JSON")]
    pub json: bool,
}
