//! `fleet-echo cost`: cost of stragglers.

use std::collections::BTreeSet;
use std::io::{self, Write};

use clap::Args;
use echo_core::text::decimal;
use serde_json::Value;

use crate::cli::column::Column;
use crate::cli::output::OutputArgs;
use crate::cli::scope::ScopeArgs;
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::view::{decimals, heading, list, money, number, percent, quality, text};
use crate::cli::{CliError, ClientArgs, ToolInput, query};

/// Cost of stragglers in a window, and per hour now.
#[derive(Debug, Clone, Args)]
pub struct CostArgs {
    /// Cluster and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Maximum number of contributors and of jobs listed [default: 20]
    #[arg(long, env = "FLEET_ECHO_LIMIT")]
    pub limit: Option<u32>,
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
}

const CONTRIBUTORS: [Column<'_>; 12] = [
    Column::money("COST", "cost"),
    Column::text("", "currency"),
    Column::money("PER HOUR", "run_rate_per_hour").if_known(),
    Column::decimals("GPU-HOURS", "lost_gpu_hours", 4),
    Column::state(),
    Column::text("CLUSTER", "cluster"),
    Column::text("NODE", "node_id"),
    Column::count("RANK", "rank"),
    Column::text("KIND", "kind"),
    Column::money("IF FIXED", "if_fixed").wide(),
    Column::text("INCIDENT", "incident_id").wide(),
    Column::sentence("REASON", "reason"),
];

const JOBS: [Column<'_>; 6] = [
    Column::money("COST", "cost"),
    Column::text("", "currency"),
    Column::decimals("GPU-HOURS", "lost_gpu_hours", 4),
    Column::text("CLUSTER", "cluster"),
    Column::text("NAMESPACE", "namespace").if_known(),
    Column::text("JOB", "job"),
];

/// Runs the command.
pub fn run(args: &CostArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let input = ToolInput::from_scope(&args.scope).with("limit", args.limit);
    let Some(answer) = query(&args.client, "fleet.cluster.get_cost", input, screen)? else {
        return Ok(());
    };
    let output = args.client.output;
    if output.has_rows_only() {
        let table = Table::new(&CONTRIBUTORS, list(&answer, "contributors"));
        return Ok(table.write_rows(output, screen)?);
    }
    Ok(print(&answer, output, screen)?)
}

fn print(answer: &Value, output: OutputArgs, out: &mut Screen<'_>) -> io::Result<()> {
    writeln!(out, "{}\n", heading(answer))?;
    let (window, hourly) = (
        lost(answer, "window_total"),
        lost(answer, "run_rate_per_hour"),
    );
    writeln!(out, "lost in the window    {window}")?;
    writeln!(out, "lost per hour now     {hourly}{}", as_of(answer))?;
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
    let names_cluster = answer.get("cluster").is_some_and(Value::is_string);
    if !contributors.is_empty() {
        writeln!(out)?;
        let table = Table::new(&CONTRIBUTORS, contributors).without_if("cluster", names_cluster);
        table.print(output.layout(), out)?;
    }
    let left_out = number(answer, "contributors_left_out").unwrap_or(0.0);
    if left_out > 0.0 {
        writeln!(out, "{left_out} more: raise --limit")?;
    }
    let jobs = list(answer, "by_job");
    if tells_jobs_apart(jobs) {
        writeln!(out)?;
        if output.layout().has_header {
            writeln!(out, "BY JOB")?;
        }
        let table = Table::new(&JOBS, jobs).without_if("cluster", names_cluster);
        table.print(output.layout(), out)?;
        if let Some(hours) = hours_in_other_rows(answer, jobs) {
            writeln!(out, "{hours} GPU-hours in other rows: raise --limit")?;
        }
    }
    writeln!(out, "\n{}", quality(answer))
}

/// Returns true if there are several jobs, or if a namespace is known.
fn tells_jobs_apart(rows: &[Value]) -> bool {
    let job = |row: &Value| (text(row, "cluster"), text(row, "job"));
    let jobs: BTreeSet<_> = rows.iter().map(job).collect();
    let has_namespace = |row: &Value| row.get("namespace").is_some_and(Value::is_string);
    jobs.len() > 1 || rows.iter().any(has_namespace)
}

/// Formats the GPU-hours lost that no row contains; `None` if none would be seen.
fn hours_in_other_rows(answer: &Value, rows: &[Value]) -> Option<String> {
    let listed: f64 = rows
        .iter()
        .filter_map(|row| number(row, "lost_gpu_hours"))
        .sum();
    let others = number(answer, "lost_gpu_hours")? - listed;
    (others >= 0.000_05).then(|| decimal(others, 4))
}

/// Time of the loss per hour; empty without events.
fn as_of(answer: &Value) -> String {
    if number(answer, "horizon_s").is_none() {
        return String::new();
    }
    let as_of = text(answer, "as_of");
    let is_stale = answer.get("stale") == Some(&Value::Bool(true));
    let stale = if is_stale { ", stale" } else { "" };
    format!(" (at {as_of}{stale})")
}

/// Formats a sum of the answer with its currency, one per currency if there are several.
pub(super) fn lost(answer: &Value, name: &str) -> String {
    let sum = |row: &Value| format!("{} {}", money(row, name), text(row, "currency"));
    let by_currency = list(answer, "by_currency");
    let sums = match by_currency {
        [_, _, ..] => by_currency.iter().map(sum).collect(),
        _ if number(answer, name).is_none() => return "unknown".to_owned(),
        _ => vec![sum(answer)],
    };
    format!("{}{}", at_least(answer), sums.join(" and "))
}

/// Words before an amount, or before the amounts of an incident, if more than that was lost.
pub(super) fn at_least(answer: &Value) -> &'static str {
    let is_lower_bound = answer.get("lower_bound").and_then(Value::as_bool);
    if is_lower_bound == Some(true) {
        "at least "
    } else {
        ""
    }
}
