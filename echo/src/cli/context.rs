//! `fleet-echo context`: servers with names, as `kubectl` has them, so that commands need no flags.
//!
//! A context replaces the defaults of the connection flags. With `--server` or `FLEET_ECHO_SERVER` the
//! current context is not used, so its token is not sent to that server. With a context, the other
//! connection variables are not used, because their token may be for another server.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Subcommand};
use echo_core::error::chain;
use serde_json::{Map, Value};

use crate::cli::column::Column;
use crate::cli::output::OutputArgs;
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::{CliError, json_output};
use crate::config::contexts::{ContextError, ContextFile};

/// Name of the flag that chooses a context for one command.
const CONTEXT: &str = "context";

/// Flags that belong to one server, by their ids.
const OF_A_SERVER: [&str; 6] = [
    "server",
    "tls_ca",
    "token",
    "token_file",
    "shards",
    "insecure_token",
];

/// Named servers.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct ContextArgs {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Example:
  fleet-echo context set prod --server https://echo.example:8081 \\
      --token-file ~/.echo-token
  fleet-echo context use prod
  fleet-echo status

The file is $FLEET_ECHO_CONFIG, or fleet-echo/config.toml in $XDG_CONFIG_HOME or ~/.config. \
Another context for one command: --context NAME. With --server or FLEET_ECHO_SERVER the current \
context is not used; with a context, other variables of the connection are not used.";

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// List the contexts; the current one is marked
    List(ListArgs),
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
struct ListArgs {
    /// Output format.
    #[command(flatten)]
    output: OutputArgs,
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

const CONTEXTS: [Column<'_>; 7] = [
    Column::computed("CURRENT", "current", mark),
    Column::text("NAME", "name"),
    Column::text("SERVER", "server"),
    Column::text("CLUSTER", "cluster").if_known(),
    Column::text("SHARDS", "shards").if_known(),
    Column::text("TLS CA", "tls_ca").wide(),
    Column::text("TOKEN FILE", "token_file").wide(),
];

/// Runs the command.
pub fn run(args: &ContextArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let mut file = ContextFile::load(ContextFile::path()?)?;
    let mut output = OutputArgs::default();
    match &args.action {
        Action::List(list) => output = list.output,
        Action::Use { name } => file.make_current(Some(name))?,
        Action::Unset => file.make_current(None)?,
        Action::Set(set) => file.set(&set.name, set.values()?)?,
        Action::Remove { name } => file.remove(name)?,
    }
    if !matches!(args.action, Action::List(_)) {
        file.save()?;
    }
    let contexts = as_json(&file)?;
    if output.is_json() {
        return Ok(json_output::print(
            format!("{contexts}\n").as_bytes(),
            screen,
        )?);
    }
    let contexts = contexts.as_array().map_or(&[][..], Vec::as_slice);
    let table = Table::new(&CONTEXTS, contexts);
    if output.has_rows_only() {
        return Ok(table.write_rows(output, screen)?);
    }
    if contexts.is_empty() {
        let first_step = "no contexts: fleet-echo context set NAME --server URL";
        return Ok(writeln!(screen, "{first_step}")?);
    }
    Ok(table.print(output.layout(), screen)?)
}

/// Marks the current context.
fn mark(context: &Value) -> String {
    let is_current = context.get("current") == Some(&Value::Bool(true));
    if is_current { "*" } else { "" }.to_owned()
}

/// All contexts as an array of objects, with their values by the names of the flags.
fn as_json(file: &ContextFile) -> Result<Value, ContextError> {
    let names = file.names();
    let one = |name: &&str| {
        let values = file.values(name)?.into_iter();
        let mut context: Map<String, Value> = values
            .map(|(flag, value)| (flag.to_owned(), value.into()))
            .collect();
        context.insert("name".to_owned(), (*name).into());
        context.insert("current".to_owned(), (file.current() == Some(name)).into());
        Ok(Value::Object(context))
    };
    names.iter().map(one).collect()
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
    // The cluster may be one of the context.
    let lenient = of_clients(command(), &|arg| arg.required(false));
    let found = lenient.try_get_matches_from(&line).ok();
    let values = found.map(|found| values(leaf(&found))).transpose();
    let values = values.map_err(|error| {
        clap::Error::raw(ErrorKind::InvalidValue, format!("{}\n", chain(&error)))
    })?;
    let command = match values {
        Some(Some(values)) => with_defaults(command(), &values),
        Some(None) => without_context(command()),
        None => command(),
    };
    command.try_get_matches_from(&line)
}

/// Returns the values of the context that a command uses; `None` if it uses none.
fn values(command: &ArgMatches) -> Result<Option<Vec<(&'static str, String)>>, ContextError> {
    // Not every command has a connection.
    let Ok(chosen) = command.try_get_one::<String>(CONTEXT) else {
        return Ok(None);
    };
    let chosen = chosen.filter(|name| !name.is_empty());
    let Some(server) = command.value_source("server") else {
        return Ok(None);
    };
    let is_chosen = command.value_source(CONTEXT) == Some(ValueSource::CommandLine);
    match server {
        ValueSource::CommandLine if is_chosen => return Err(ContextError::TwoServers),
        ValueSource::DefaultValue => {}
        _ if is_chosen => {}
        _ => return Ok(None),
    }
    let file = match ContextFile::path() {
        Err(ContextError::NoHome) if chosen.is_none() => return Ok(None),
        path => ContextFile::load(path?)?,
    };
    let name = chosen.map(String::as_str).or_else(|| file.current());
    let Some(name) = name else { return Ok(None) };
    let mut values = file.values(name)?;
    // What the command prints to be run next names the context.
    values.push((CONTEXT, name.to_owned()));
    Ok(Some(values))
}

fn leaf(matches: &ArgMatches) -> &ArgMatches {
    matches
        .subcommand()
        .map_or(matches, |(_, inner)| leaf(inner))
}

/// Replaces the defaults of the connection flags, and ignores their environment variables.
fn with_defaults(command: Command, values: &[(&'static str, String)]) -> Command {
    of_clients(command, &|arg| {
        let found = values.iter().find(|(flag, _)| arg.get_id() == *flag);
        let arg = if OF_A_SERVER.iter().any(|flag| arg.get_id() == *flag) {
            arg.env(None)
        } else {
            arg
        };
        match found {
            Some((_, text)) => arg.required(false).default_value(text.clone()),
            None => arg,
        }
    })
}

/// Ignores the variable for the context, because the server is given.
fn without_context(command: Command) -> Command {
    of_clients(command, &|arg| {
        if arg.get_id() == CONTEXT {
            arg.env(None)
        } else {
            arg
        }
    })
}

/// Changes the flags of the commands that have a connection.
pub(super) fn of_clients(command: Command, change: &dyn Fn(Arg) -> Arg) -> Command {
    let command = command.mut_subcommands(|inner| of_clients(inner, change));
    if command.get_arguments().any(|arg| arg.get_id() == CONTEXT) {
        command.mut_args(change)
    } else {
        command
    }
}

#[cfg(test)]
mod tests;
