//! `fleet-echo history`: stored events.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use crate::cli::view::{decimals, list, number, table, text};
use crate::cli::{CliError, ClientArgs, ScopeArgs, ToolInput, query};

/// Stored events, newest first.
#[derive(Debug, Clone, Args)]
pub struct HistoryArgs {
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Cluster and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Event filter.
    #[command(flatten)]
    pub filter: FilterArgs,
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
    /// Maximum number of events, up to 1000 [default: 100]
    #[arg(long, env = "FLEET_ECHO_LIMIT")]
    pub limit: Option<u32>,
    /// Cursor printed below the previous page
    #[arg(long, env = "FLEET_ECHO_CURSOR")]
    pub cursor: Option<String>,
}

/// Runs the command.
pub fn run(args: &HistoryArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let filter = &args.filter;
    let input = ToolInput::from_scope(&args.scope)
        .with("node", filter.node.clone())
        .with("rank", filter.rank)
        .with("op", filter.op.clone())
        .with("metric", filter.metric.clone())
        .with("limit", filter.limit)
        .with("cursor", filter.cursor.clone());
    if let Some(answer) = query(&args.client, "fleet.cluster.event_history", input, out)? {
        print(&answer, out)?;
    }
    Ok(())
}

fn print(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    let events = list(answer, "events");
    if events.is_empty() {
        return writeln!(out, "no events");
    }
    let header = [
        "TIME", "CLUSTER", "NODE", "RANK", "METRIC", "VALUE", "UNIT", "COMM", "OP", "SEQ",
    ];
    table(out, &header, &events.iter().map(event).collect::<Vec<_>>())?;
    match answer.get("next_cursor").and_then(Value::as_str) {
        Some(cursor) => writeln!(out, "\nnext page: --cursor {cursor}"),
        None => Ok(()),
    }
}

fn event(event: &Value) -> Vec<String> {
    vec![
        text(event, "timestamp"),
        text(event, "cluster_id"),
        text(event, "node_id"),
        text(event, "rank"),
        text(event, "metric_name"),
        reading(event),
        text(event, "unit"),
        text(event, "comm_id"),
        text(event, "op"),
        seqs(event),
    ]
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
