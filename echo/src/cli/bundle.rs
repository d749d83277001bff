//! `fleet-echo bundle`: everything that is known of an incident, in one file.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::cli::connection::ConnectionArgs;
use crate::cli::output::write_file;
use crate::cli::screen::Screen;
use crate::cli::{CliError, get_bytes};

/// Path of the archive on the server.
const PATH: &str = "/api/v1/incident.tar.gz";

/// Incident and file.
#[derive(Debug, Clone, Args)]
pub struct BundleArgs {
    /// Id of the incident: 16 hexadecimal digits, as in `outliers -o wide` and in links of the page
    #[arg(value_name = "INCIDENT")]
    pub incident: String,
    /// Cluster [default: the one that has the incident]
    #[arg(long, short, env = "FLEET_ECHO_CLUSTER", value_name = "NAME")]
    pub cluster: Option<String>,
    /// File to write [default: incident-INCIDENT.tar.gz]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Connection to the server.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Runs the command.
pub fn run(args: &BundleArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let incident = ("incident", args.incident.clone());
    let cluster = args.cluster.clone().map(|name| ("cluster", name));
    let query: Vec<_> = std::iter::once(incident).chain(cluster).collect();
    let archive = get_bytes(&args.connection, PATH, &query)?;
    let default = || PathBuf::from(format!("incident-{}.tar.gz", args.incident));
    let file = args.file.clone().unwrap_or_else(default);
    write_file(&file, &archive)?;
    let (name, kb) = (file.display(), archive.len().div_ceil(1000));
    Ok(writeln!(
        screen,
        "{name}: {kb} kB; its README.md says what is in it"
    )?)
}
