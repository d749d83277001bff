//! `fleet-echo cost`: cost of stragglers.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use crate::cli::view::{decimals, heading, list, number, percent, quality, table, text};
use crate::cli::{CliError, ClientArgs, ScopeArgs, ToolInput, query};

/// Cost of stragglers in a window, and per hour now.
#[derive(Debug, Clone, Args)]
pub struct CostArgs {
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Cluster and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Maximum number of contributors listed [default: 20]
    #[arg(long, env = "FLEET_ECHO_LIMIT")]
    pub limit: Option<u32>,
}

/// Runs the command.
pub fn run(args: &CostArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let input = ToolInput::from_scope(&args.scope).with("limit", args.limit);
    if let Some(answer) = query(&args.client, "fleet.cluster.get_cost", input, out)? {
        print(&answer, out)?;
    }
    Ok(())
}

fn print(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", heading(answer))?;
    let window: Vec<String> = sums(answer, "window_total");
    let hourly: Vec<String> = sums(answer, "run_rate_per_hour");
    writeln!(out, "lost in the window    {}", window.join(" and "))?;
    writeln!(
        out,
        "lost per hour now     {}{}",
        hourly.join(" and "),
        lately(answer)
    )?;
    writeln!(
        out,
        "GPU-hours lost        {}, {} of {} allocated",
        decimals(answer, "lost_gpu_hours", 4),
        percent(answer, "lost_ratio"),
        decimals(answer, "allocated_gpu_hours", 4),
    )?;
    if number(answer, "unpriced_gpu_hours").is_some_and(|hours| hours > 0.0) {
        let hours = decimals(answer, "unpriced_gpu_hours", 4);
        writeln!(out, "GPU-hours unpriced    {hours}: no rate for these GPUs")?;
    }
    let contributors = list(answer, "contributors");
    if !contributors.is_empty() {
        writeln!(out)?;
        let header = ["COST", "", "GPU-HOURS", "STATE", "NODE", "RANK", "REASON"];
        table(
            out,
            &header,
            &contributors.iter().map(contributor).collect::<Vec<_>>(),
        )?;
    }
    let left_out = number(answer, "contributors_left_out").unwrap_or(0.0);
    if left_out > 0.0 {
        writeln!(out, "{left_out} more: raise --limit")?;
    }
    writeln!(out, "\n{}", quality(answer))
}

/// Horizon of the run rate; empty without events.
fn lately(answer: &Value) -> String {
    if number(answer, "horizon_s").is_none() {
        return String::new();
    }
    let (seconds, as_of) = (decimals(answer, "horizon_s", 0), text(answer, "as_of"));
    let is_stale = answer.get("stale") == Some(&Value::Bool(true));
    let stale = if is_stale { ", stale" } else { "" };
    format!(" (the {seconds} s before {as_of}{stale})")
}

/// Formats money with two decimals, amounts below 1 with six.
fn money(row: &Value, name: &str) -> String {
    let is_small = number(row, name).is_some_and(|amount| amount > 0.0 && amount < 1.0);
    decimals(row, name, if is_small { 6 } else { 2 })
}

/// Formats a sum of the answer with its currency, one per currency if there are several.
fn sums(answer: &Value, name: &str) -> Vec<String> {
    let sum = |row: &Value| format!("{} {}", money(row, name), text(row, "currency"));
    let by_currency = list(answer, "by_currency");
    match by_currency {
        [_, _, ..] => by_currency.iter().map(sum).collect(),
        _ if number(answer, name).is_none() => vec!["unknown".to_owned()],
        _ => vec![sum(answer)],
    }
}

fn contributor(row: &Value) -> Vec<String> {
    vec![
        money(row, "cost"),
        text(row, "currency"),
        decimals(row, "lost_gpu_hours", 4),
        text(row, "state"),
        text(row, "node_id"),
        text(row, "rank"),
        text(row, "reason"),
    ]
}
