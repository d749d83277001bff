//! `fleet-echo sql`: SQL query over the published views.

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::cli::view::{list, table, text};
use crate::cli::{CliError, ClientArgs, ToolInput, for_display, get_json, query};

/// SQL query over the published views.
#[derive(Debug, Clone, Args)]
pub struct SqlArgs {
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
    /// SELECT statement; read from standard input if absent or `-`
    #[arg(value_name = "SELECT", conflicts_with = "file")]
    pub query: Option<String>,
    /// File with the SELECT statement
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_SQL_FILE")]
    pub file: Option<PathBuf>,
    /// Maximum number of rows, up to 10000 [default: 200]
    #[arg(long, env = "FLEET_ECHO_MAX_ROWS")]
    pub max_rows: Option<u32>,
    /// Maximum size of the rows as JSON in bytes, up to 4194304 [default: 49152]
    #[arg(long, env = "FLEET_ECHO_MAX_BYTES")]
    pub max_bytes: Option<u32>,
    /// List the views and their columns instead of running a query
    #[arg(long, conflicts_with_all = ["query", "file"])]
    pub views: bool,
}

/// Runs the command.
pub fn run(args: &SqlArgs, out: &mut dyn Write) -> Result<(), CliError> {
    if args.views {
        let response = get_json(&args.client.connection, "/api/v1/sql");
        if let Some(answer) = for_display(&args.client, response, out)? {
            print_views(&answer, out)?;
        }
        return Ok(());
    }
    let input = ToolInput::default()
        .with("sql", Some(statement(args)?))
        .with("max_rows", args.max_rows)
        .with("max_bytes", args.max_bytes);
    if let Some(answer) = query(&args.client, "fleet.cluster.run_analysis", input, out)? {
        print(&answer, out)?;
    }
    Ok(())
}

/// Returns the statement from the command line, a file or standard input.
fn statement(args: &SqlArgs) -> Result<String, CliError> {
    if let Some(path) = &args.file {
        return fs::read_to_string(path).map_err(|error| {
            CliError::Usage(format!("cannot read --file {}: {error}", path.display()))
        });
    }
    match args.query.as_deref() {
        Some(query) if query != "-" => Ok(query.to_owned()),
        None if io::stdin().is_terminal() => Err(CliError::Usage(
            "no query: give one, such as fleet-echo sql \"SELECT * FROM verdicts\"; --views lists the views"
                .to_owned(),
        )),
        Some(_) | None => {
            let mut query = String::new();
            let read = io::stdin().read_to_string(&mut query);
            read.map_err(|error| {
                CliError::Usage(format!("cannot read the query from standard input: {error}"))
            })?;
            Ok(query)
        }
    }
}

fn print(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<String> = list(answer, "columns")
        .iter()
        .map(|column| text(column, "name"))
        .collect();
    let header: Vec<&str> = names.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> = list(answer, "rows")
        .iter()
        .map(|row| row.as_array().map_or(&[][..], Vec::as_slice))
        .map(|row| row.iter().map(cell).collect())
        .collect();
    table(out, &header, &rows)?;
    let rows = match rows.len() {
        1 => "1 row".to_owned(),
        rows => format!("{rows} rows"),
    };
    match answer.get("note").and_then(Value::as_str) {
        Some(note) => writeln!(out, "\n{rows}, {note}"),
        None => writeln!(out, "\n{rows}"),
    }
}

/// Formats a value on one line.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn print_views(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    for view in list(answer, "views") {
        writeln!(out, "{}: {}", text(view, "name"), text(view, "comment"))?;
        for column in list(view, "columns") {
            let (name, kind) = (text(column, "name"), text(column, "type"));
            writeln!(out, "  {name:<20} {kind:<12} {}", text(column, "comment"))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
