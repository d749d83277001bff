//! `fleet-echo history`: what was measured.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use crate::cli::view::{decimals, list, number, table, text};
use crate::cli::{CliError, ClientArgs, ScopeArgs, ToolInput, query};

/// The stored measurements, newest first.
#[derive(Debug, Clone, Args)]
pub struct HistoryArgs {
    /// Whom to ask.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What about.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Which events.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Which events; an absent filter lets everything pass.
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
    /// Largest number of events, up to 1000; 100 when absent
    #[arg(long, env = "FLEET_ECHO_LIMIT")]
    pub limit: Option<u32>,
    /// Where the page before ended, as it was printed under it
    #[arg(long, env = "FLEET_ECHO_CURSOR")]
    pub cursor: Option<String>,
}

/// Asks, and prints the answer.
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
        Some(cursor) => writeln!(out, "\nmore with --cursor {cursor}"),
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

/// A single number as it is, a histogram as its count, mean and extremes.
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
