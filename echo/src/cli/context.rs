//! `fleet-echo context`: servers with names, as `kubectl` has them, so that commands need no flags.
//!
//! The current context replaces the defaults of the connection flags. A server that a flag or an
//! environment variable names is queried as it is, so no token of a context is sent to it.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Subcommand};
use echo_core::error::chain;

use crate::cli::CliError;
use crate::config::contexts::{ContextError, ContextFile};

/// Name of the flag that chooses a context for one command.
const CONTEXT: &str = "context";

/// Named servers.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct ContextArgs {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Example:
  fleet-echo context set prod --server https://echo.example:8081 --token-file ~/.echo-token
  fleet-echo context use prod
  fleet-echo status

The file is $FLEET_ECHO_CONFIG, or fleet-echo/config.toml in $XDG_CONFIG_HOME or ~/.config.
Another context for one command: --context NAME. With --server or FLEET_ECHO_SERVER none is used.";

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// List the contexts; the current one is marked
    List,
    /// Make a context the current one
    Use {
        /// Its name
        name: String,
    },
    /// Use no context
    Unset,
    /// Add a context, or change the given values of one
    Set(SetArgs),
    /// Remove a context
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Clone, Args)]
struct SetArgs {
    /// Name of the context
    name: String,
    /// Server address; may contain {shard}
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// CA certificates to verify the server, in PEM
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// File with the bearer token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Cluster of queries that name none
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Number of shards
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
}

/// Runs the command.
pub fn run(args: &ContextArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut file = ContextFile::load(ContextFile::path()?)?;
    match &args.action {
        Action::List => {}
        Action::Use { name } => file.make_current(Some(name))?,
        Action::Unset => file.make_current(None)?,
        Action::Set(set) => file.set(&set.name, set.values()?)?,
        Action::Remove { name } => file.remove(name)?,
    }
    if !matches!(args.action, Action::List) {
        file.save()?;
    }
    for name in file.names() {
        let mark = if file.current() == Some(name) {
            '*'
        } else {
            ' '
        };
        let values = file.values(name)?;
        let values: Vec<&str> = values.iter().map(|(_, text)| text.as_str()).collect();
        writeln!(out, "{mark} {name}  {}", values.join("  "))?;
    }
    if file.names().is_empty() {
        writeln!(out, "no contexts: fleet-echo context set NAME --server URL")?;
    }
    Ok(())
}

impl SetArgs {
    /// Values that are given, by the names of their flags. A path holds in any folder.
    fn values(&self) -> Result<Vec<(&'static str, String)>, CliError> {
        let absolute = |path: &PathBuf| -> Result<String, CliError> {
            Ok(std::path::absolute(path)?.to_string_lossy().into_owned())
        };
        let values = [
            ("server", self.server.clone()),
            ("tls_ca", self.tls_ca.as_ref().map(absolute).transpose()?),
            (
                "token_file",
                self.token_file.as_ref().map(absolute).transpose()?,
            ),
            ("cluster", self.cluster.clone()),
            ("shards", self.shards.map(|shards| shards.to_string())),
        ];
        Ok(values
            .into_iter()
            .filter_map(|(flag, value)| Some((flag, value?)))
            .collect())
    }
}

/// Parses a command line, with the values of its context as defaults.
pub fn matches(
    command: impl Fn() -> Command,
    line: impl Iterator<Item = OsString>,
) -> Result<ArgMatches, clap::Error> {
    let line: Vec<OsString> = line.collect();
    let plain = command().try_get_matches_from(&line)?;
    let values = values(leaf(&plain)).map_err(|error| {
        clap::Error::raw(ErrorKind::InvalidValue, format!("{}\n", chain(&error)))
    })?;
    match values {
        Some(values) => with_defaults(command(), &values).try_get_matches_from(&line),
        None => Ok(plain),
    }
}

/// Returns the values of the context that a command uses; `None` if it uses none.
fn values(command: &ArgMatches) -> Result<Option<Vec<(&'static str, String)>>, ContextError> {
    // The flag is among those of the connection, which not every command has.
    let Ok(chosen) = command.try_get_one::<String>(CONTEXT) else {
        return Ok(None);
    };
    let has_server = command.value_source("server") != Some(ValueSource::DefaultValue);
    if chosen.is_none() && has_server {
        return Ok(None);
    }
    let file = match ContextFile::path() {
        Err(ContextError::NoHome) if chosen.is_none() => return Ok(None),
        path => ContextFile::load(path?)?,
    };
    let name = chosen.map(String::as_str).or_else(|| file.current());
    name.map(|name| file.values(name)).transpose()
}

fn leaf(matches: &ArgMatches) -> &ArgMatches {
    matches
        .subcommand()
        .map_or(matches, |(_, inner)| leaf(inner))
}

/// Replaces the defaults of the connection flags, of a command and of those below it.
fn with_defaults(command: Command, values: &[(&'static str, String)]) -> Command {
    let command = command.mut_subcommands(|inner| with_defaults(inner, values));
    if !command.get_arguments().any(|arg| arg.get_id() == CONTEXT) {
        return command;
    }
    command.mut_args(|arg| {
        let found = values.iter().find(|(flag, _)| arg.get_id() == *flag);
        match found {
            // The variable names a server of its own.
            Some((flag, text)) if *flag == "server" => arg.env(None).default_value(text.clone()),
            Some((_, text)) => arg.required(false).default_value(text.clone()),
            None => arg,
        }
    })
}

#[cfg(test)]
mod tests;
