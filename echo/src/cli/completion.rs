//! `fleet-echo completion` and the hidden `fleet-echo man`: completion scripts and man pages.

use std::io::Write;

use clap::{Args, Command};
pub use fleet_completion::ManArgs;

use crate::cli::CliError;

/// Completion script of a shell.
#[derive(Debug, Clone, Args)]
#[command(after_help = fleet_completion::examples!("fleet-echo"))]
#[group(skip)]
pub struct CompletionArgs {
    /// Shell.
    #[command(flatten)]
    pub shell: fleet_completion::CompletionArgs,
}

/// Prints the completion script.
pub fn run(args: &CompletionArgs, command: Command, out: &mut dyn Write) -> Result<(), CliError> {
    Ok(args.shell.print(command, out)?)
}

/// Writes the man pages.
pub fn write_man_pages(args: &ManArgs, command: Command) -> Result<(), CliError> {
    args.write(command).map_err(CliError::Output)
}
