//! `fleet-echo history`: stored events.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use crate::cli::column::Column;
use crate::cli::output::OutputArgs;
use crate::cli::scope::ScopeArgs;
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::view::{decimals, list, number, text};
use crate::cli::{CliError, ClientArgs, ToolInput, query};

/// Stored events, newest first.
#[derive(Debug, Clone, Args)]
pub struct HistoryArgs {
    /// Cluster and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Event filter.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Event filter; an absent field matches all events.
#[derive(Debug, Clone, Default, Args)]
pub struct FilterArgs {
    /// Node
    #[arg(long, env = "FLEET_ECHO_NODE")]
    pub node: Option<String>,
    /// Rank within its job
    #[arg(long, env = "FLEET_ECHO_RANK")]
    pub rank: Option<u32>,
    /// Collective operation, such as `AllReduce`
    #[arg(long, env = "FLEET_ECHO_OP")]
    pub op: Option<String>,
    /// Metric, such as `nccl.collective.wait_ms`
    #[arg(long, env = "FLEET_ECHO_METRIC")]
    pub metric: Option<String>,
    /// Maximum number of events, up to 1000 [default: 20]
    #[arg(long, env = "FLEET_ECHO_LIMIT")]
    pub limit: Option<u32>,
    /// Cursor printed below the previous page
    #[arg(long, env = "FLEET_ECHO_CURSOR")]
    pub cursor: Option<String>,
}

const EVENTS: [Column<'_>; 10] = [
    Column::text("TIME", "timestamp"),
    Column::text("CLUSTER", "cluster_id"),
    Column::text("NODE", "node_id"),
    Column::count("RANK", "rank"),
    Column::text("METRIC", "metric_name"),
    Column::number("VALUE", "value_double", reading),
    Column::text("UNIT", "unit"),
    Column::text("COMM", "comm_id"),
    Column::text("OP", "op"),
    Column::computed("SEQ", "seq_first", seqs),
];

/// Columns of CSV: a histogram has count and sum, a single value one of the values.
const CSV: [Column<'_>; 16] = [
    Column::text("", "timestamp"),
    Column::text("", "cluster_id"),
    Column::text("", "node_id"),
    Column::text("", "rank"),
    Column::text("", "metric_name"),
    Column::text("", "value_double"),
    Column::text("", "value_int"),
    Column::text("", "count"),
    Column::text("", "sum"),
    Column::text("", "min"),
    Column::text("", "max"),
    Column::text("", "unit"),
    Column::text("", "comm_id"),
    Column::text("", "op"),
    Column::text("", "seq_first"),
    Column::text("", "seq_last"),
];

/// Runs the command.
pub fn run(args: &HistoryArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let filter = &args.filter;
    let input = ToolInput::from_scope(&args.scope)
        .with("node", filter.node.clone())
        .with("rank", filter.rank)
        .with("op", filter.op.clone())
        .with("metric", filter.metric.clone())
        .with("limit", filter.limit)
        .with("cursor", filter.cursor.clone());
    let Some(answer) = query(&args.client, "fleet.cluster.event_history", input, screen)? else {
        return Ok(());
    };
    let (output, events) = (args.client.output, list(&answer, "events"));
    if output.has_rows_only() {
        Table::new(&CSV, events).write_rows(output, screen)?;
        if let Some(cursor) = next_cursor(&answer) {
            // Rows only in the output, which a program reads.
            writeln!(io::stderr(), "next page: --cursor {cursor}")?;
        }
        return Ok(());
    }
    Ok(print(&answer, output, screen)?)
}

fn print(answer: &Value, output: OutputArgs, screen: &mut Screen<'_>) -> io::Result<()> {
    let events = list(answer, "events");
    if events.is_empty() {
        return writeln!(screen, "no events");
    }
    Table::new(&EVENTS, events).print(output.layout(), screen)?;
    match next_cursor(answer) {
        Some(cursor) => writeln!(screen, "\nnext page: --cursor {cursor}"),
        None => Ok(()),
    }
}

fn next_cursor(answer: &Value) -> Option<&str> {
    answer.get("next_cursor").and_then(Value::as_str)
}

fn seqs(event: &Value) -> String {
    match (event.get("seq_first"), event.get("seq_last")) {
        (Some(Value::Number(first)), Some(Value::Number(last))) => format!("{first}..{last}"),
        _ => "-".to_owned(),
    }
}

/// Formats a single value, or a histogram as count, mean and range.
fn reading(event: &Value) -> String {
    let count = number(event, "count").filter(|count| *count > 0.0);
    match (
        text(event, "kind").as_str(),
        count.zip(number(event, "sum")),
    ) {
        ("int", _) => text(event, "value_int"),
        ("histogram", Some((count, sum))) => format!(
            "{count} x {:.3} ({}..{})",
            sum / count,
            decimals(event, "min", 3),
            decimals(event, "max", 3),
        ),
        ("histogram", None) => "0 samples".to_owned(),
        _ => text(event, "value_double"),
    }
}
