//! Commands for a database file that no instance has open: `fleet-echo backup`, `export` and
//! `repair`.

use std::path::PathBuf;

use clap::Args;

pub mod backup;
pub mod export;
pub mod repair;

/// Database and output format.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// Database file
    #[arg(long, value_name = "PATH", env = "FLEET_ECHO_DB")]
    pub db: PathBuf,
    /// Print JSON
    #[arg(long, env = "FLEET_ECHO_JSON")]
    pub json: bool,
}
