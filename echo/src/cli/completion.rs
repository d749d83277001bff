//! Completion of command lines, with names of clusters from the server and of contexts from their
//! file; the hidden `fleet-echo man`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::time::Duration;

use clap::{Arg, Args, Command, FromArgMatches};
use fleet_completion::{ArgValueCompleter, CompletionCandidate};
use serde_json::Value;

use crate::cli::connection::ConnectionArgs;
use crate::cli::context::{self, of_clients};
use crate::cli::{CliError, get_json};
use crate::config::contexts::ContextFile;

/// Man pages of all commands.
pub type ManArgs = fleet_completion::ManArgs;

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
pub fn run(args: &CompletionArgs, command: &Command, out: &mut dyn Write) -> Result<(), CliError> {
    Ok(args.shell.print(command, out)?)
}

/// Writes the man pages.
pub fn write_man_pages(args: &ManArgs, command: Command) -> Result<(), CliError> {
    args.write(command).map_err(CliError::Output)
}

/// Completes a command line and ends the process, if a script of `completion` runs it; otherwise
/// returns. Has to be called before threads are started.
pub fn complete(command_line: fn() -> Command) {
    fleet_completion::complete(|| with_names(command_line));
}

/// Adds the names of clusters and contexts as values.
fn with_names(command_line: fn() -> Command) -> Command {
    let clusters = move |typed: &OsStr| matching(typed, clusters(command_line).unwrap_or_default());
    let contexts = |typed: &OsStr| matching(typed, contexts().unwrap_or_default());
    let (clusters, contexts) = (
        ArgValueCompleter::new(clusters),
        ArgValueCompleter::new(contexts),
    );
    let with_names = |arg: Arg| match arg.get_id().as_str() {
        "cluster" => arg.add(clusters.clone()),
        "context" => arg.add(contexts.clone()),
        _ => arg,
    };
    let of_contexts = |action: Command| {
        if action.get_arguments().any(|arg| arg.get_id() == "name") {
            action.mut_arg("name", |name| name.add(contexts.clone()))
        } else {
            action
        }
    };
    of_clients(command_line(), &with_names)
        .mut_subcommand("context", |command| command.mut_subcommands(of_contexts))
}

/// Returns the names that begin with what is typed.
fn matching(typed: &OsStr, names: Vec<String>) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let names = names.into_iter().filter(|name| name.starts_with(&*typed));
    names.map(CompletionCandidate::new).collect()
}

fn contexts() -> Option<Vec<String>> {
    let file = ContextFile::load(ContextFile::path().ok()?).ok()?;
    Some(file.names().into_iter().map(str::to_owned).collect())
}

/// Returns the clusters of the configured server, or of the context that is typed; `None` if it does
/// not answer at once. Nothing is reported, because it would be printed into the typed line.
fn clusters(command_line: fn() -> Command) -> Option<Vec<String>> {
    /// Longest wait for the server.
    const TIMEOUT: Duration = Duration::from_secs(1);
    let line = connection(&env::args_os().collect::<Vec<_>>())?;
    let matches = context::matches(command_line, line.into_iter()).ok()?;
    let (_, command) = matches.subcommand()?;
    let mut connection = ConnectionArgs::from_arg_matches(command).ok()?;
    connection.timeout = TIMEOUT;
    let (_, answer) = get_json(&connection, "/api/v1/clusters").ok()?;
    let clusters = answer.get("clusters")?.as_array()?.iter();
    let name = |one: &Value| one.get("cluster")?.as_str().map(str::to_owned);
    clusters.map(name).collect()
}

/// Returns a command line that queries the server of the typed one; `None` if its address is typed,
/// because bash splits it at colons.
fn connection(typed: &[OsString]) -> Option<Vec<OsString>> {
    if typed.iter().any(|word| word == "--server") {
        return None;
    }
    let context = typed.iter().skip_while(|word| *word != "--context");
    let line = ["fleet-echo", "clusters"].map(OsString::from).into_iter();
    Some(line.chain(context.take(2).cloned()).collect())
}
