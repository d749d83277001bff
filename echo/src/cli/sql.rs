//! `fleet-echo sql`: SQL query over the published views.

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::cli::column::Column;
use crate::cli::output::OutputArgs;
use crate::cli::screen::Screen;
use crate::cli::sql_permission::{self, RUN_ANALYSIS};
use crate::cli::table::Table;
use crate::cli::view::{counted, list, text};
use crate::cli::{CliError, ClientArgs, ToolInput, call_tool, for_display, get_json, json_output};

mod objects;
mod views;

/// SQL query over the published views.
#[derive(Debug, Clone, Args)]
pub struct SqlArgs {
    /// SELECT statement; read from standard input if absent or `-`
    #[arg(value_name = "SELECT", conflicts_with = "file")]
    pub query: Option<String>,
    /// File with the SELECT statement
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_SQL_FILE")]
    pub file: Option<PathBuf>,
    /// Maximum number of rows, up to 10000 [default: 200]
    #[arg(long, env = "FLEET_ECHO_MAX_ROWS", conflicts_with = "views")]
    pub max_rows: Option<u32>,
    /// Maximum size of the rows as JSON in bytes, up to 4194304 [default: 49152]
    #[arg(long, env = "FLEET_ECHO_MAX_BYTES", conflicts_with = "views")]
    pub max_bytes: Option<u32>,
    /// List the views and their columns instead of running a query
    #[arg(long, conflicts_with_all = ["query", "file"])]
    pub views: bool,
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Runs the command.
pub fn run(args: &SqlArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    if args.views {
        let response = get_json(&args.client.connection, "/api/v1/sql");
        if let Some(answer) = for_display(&args.client, response, screen)? {
            views::print(&answer, args.client.output, screen)?;
        }
        return Ok(());
    }
    let input = ToolInput::default()
        .with("sql", Some(statement(args)?))
        .with("max_rows", args.max_rows)
        .with("max_bytes", args.max_bytes);
    let response = call_tool(&args.client.connection, RUN_ANALYSIS, input);
    let response = response.map(|(_, answer)| (objects::document(&answer), answer));
    let answer = for_display(&args.client, response, screen);
    if let Some(answer) = answer.map_err(sql_permission::explain)? {
        print(&answer, args.client.output, screen)?;
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

fn print(answer: &Value, output: OutputArgs, screen: &mut Screen<'_>) -> io::Result<()> {
    if output.is_jsonl() {
        return json_output::lines(objects::rows(answer), screen);
    }
    let names: Vec<String> = list(answer, "columns")
        .iter()
        .map(|column| text(column, "name"))
        .collect();
    // Names of columns may be the same, so their places are the fields of a row.
    let places: Vec<String> = (0..names.len()).map(|place| place.to_string()).collect();
    let rows: Vec<Value> = list(answer, "rows")
        .iter()
        .map(|row| row.as_array().map_or(&[][..], Vec::as_slice))
        .map(|row| places.iter().cloned().zip(row.iter().cloned()).collect())
        .collect();
    let is_number = |place: &String| {
        let mut values = rows.iter().filter_map(|row| row.get(place));
        values.all(|value| value.is_number() || value.is_null())
    };
    let columns: Vec<Column<'_>> = names
        .iter()
        .zip(&places)
        .map(|(name, place)| Column::value(name, place, is_number(place)))
        .collect();
    let table = Table::new(&columns, &rows);
    if output.has_rows_only() {
        return table.write_rows(output, screen);
    }
    table.print(output.layout(), screen)?;
    let rows = counted(rows.len(), "row");
    match answer.get("note").and_then(Value::as_str) {
        Some(note) => writeln!(screen, "\n{rows}, {note}"),
        None => writeln!(screen, "\n{rows}"),
    }
}
