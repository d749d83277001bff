//! `fleet-echo completion` and the hidden `fleet-echo man`: completion scripts and man pages.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::cli::CliError;

/// Completion script of a shell.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct CompletionArgs {
    /// Shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

const HELP: &str = "\
  bash  fleet-echo completion bash > /etc/bash_completion.d/fleet-echo
  zsh   fleet-echo completion zsh > \"${fpath[1]}/_fleet-echo\"
  fish  fleet-echo completion fish > ~/.config/fish/completions/fleet-echo.fish";

/// Man pages of all commands.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Directory to write to; created if missing
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Prints the completion script.
pub fn run(
    args: &CompletionArgs,
    mut command: Command,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "fleet-echo", &mut script);
    out.write_all(&script)?;
    Ok(())
}

/// Writes the man pages.
pub fn write_man_pages(args: &ManArgs, command: Command) -> Result<(), CliError> {
    let directory = &args.directory;
    let written =
        fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command, directory));
    written.map_err(|error| {
        let message = format!("cannot write to {}: {error}", directory.display());
        CliError::Output(io::Error::new(error.kind(), message))
    })
}
