//! Tables of calls, graphs and nodes.

use std::io::{self, Write};

use serde_json::Value;

use super::{ProcessArgs, write_wrapped};
use crate::cli::column::Column;
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::view::{self, list, text};

const CALLS: [Column<'_>; 16] = [
    Column::text("CLUSTER", "cluster"),
    Column::text("NODE", "node_id"),
    Column::text("JOB", "job").wide(),
    Column::count("RANK", "rank"),
    Column::count("PID", "pid"),
    Column::text("PROCESS", "process"),
    Column::text("FUNCTION", "function"),
    Column::count("CALLS", "n_calls"),
    Column::decimals("PER s", "calls_per_s", 1),
    Column::decimals("p50 ms", "p50_ms", 3),
    Column::decimals("p95 ms", "p95_ms", 3),
    Column::decimals("p99 ms", "p99_ms", 3),
    Column::decimals("WORST p99", "worst_p99_ms", 3).wide(),
    Column::decimals("MAX ms", "max_ms", 3),
    Column::decimals("TOTAL ms", "total_ms", 1),
    Column::count("BYTES", "bytes").wide(),
];

const GRAPHS: [Column<'_>; 13] = [
    Column::text("CLUSTER", "cluster"),
    Column::text("NODE", "node_id"),
    Column::text("JOB", "job").wide(),
    Column::count("RANK", "rank"),
    Column::count("PID", "pid"),
    Column::text("PROCESS", "process"),
    Column::count("CAPTURES", "captures"),
    Column::count("INSTANTIATIONS", "instantiations"),
    Column::count("UPDATES", "updates"),
    Column::count("LAUNCHES", "launches"),
    Column::count("DESTROYS", "destroys").wide(),
    Column::decimals("LAUNCHES PER s", "launches_per_s", 1),
    Column::sentence("NOTE", "note"),
];

const NODES: [Column<'_>; 12] = [
    Column::text("CLUSTER", "cluster"),
    Column::text("NODE", "node_id"),
    Column::decimals("LAST REPORT s", "last_report_age_s", 0),
    Column::text("LAST REPORT", "last_report").wide(),
    Column::count("RANKS", "ranks"),
    Column::count("PROCESSES", "processes_with_rank"),
    Column::count("WITHOUT RANK", "processes_without_rank"),
    Column::computed("KERNEL", "has_kernel_evidence", kernel),
    Column::text("LAST CALLS", "last_calls").wide(),
    Column::text("LAST CHAIN", "last_chain").wide(),
    Column::text("LAST STACKS", "last_stacks").wide(),
    Column::sentence("FINDINGS", "findings"),
];

/// Prints calls.
pub(super) fn calls(answer: &Value, args: &ProcessArgs, screen: &mut Screen<'_>) -> io::Result<()> {
    table(&CALLS, list(answer, "functions"), (answer, args), screen)
}

/// Prints graphs.
pub(super) fn graphs(
    answer: &Value,
    args: &ProcessArgs,
    screen: &mut Screen<'_>,
) -> io::Result<()> {
    let rows = list(answer, "processes").iter();
    let rows: Vec<Value> = rows
        .map(|row| flat(row, &["calls", "calls_per_s"]))
        .collect();
    table(&GRAPHS, &rows, (answer, args), screen)
}

/// Prints nodes.
pub(super) fn check(answer: &Value, args: &ProcessArgs, screen: &mut Screen<'_>) -> io::Result<()> {
    let rows = list(answer, "nodes").iter().cloned().map(|mut row| {
        let findings = list(&row, "findings").iter().filter_map(Value::as_str);
        let findings = findings.collect::<Vec<_>>().join("; ");
        if let Some(fields) = row.as_object_mut() {
            let findings = if findings.is_empty() {
                Value::Null
            } else {
                Value::from(findings)
            };
            fields.insert("findings".to_owned(), findings);
        }
        row
    });
    let rows: Vec<Value> = rows.collect();
    if !args.client.output.has_rows_only() {
        write_wrapped(&text(answer, "summary"), screen)?;
    }
    table(&NODES, &rows, (answer, args), screen)
}

fn table(
    columns: &[Column<'_>],
    rows: &[Value],
    (answer, args): (&Value, &ProcessArgs),
    screen: &mut Screen<'_>,
) -> io::Result<()> {
    let output = args.client.output;
    if output.has_rows_only() {
        return Table::new(columns, rows).write_csv(output.layout(), screen);
    }
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(screen)?;
    let names_cluster = answer.get("cluster").is_some_and(Value::is_string);
    Table::new(columns, rows)
        .without_if("cluster", names_cluster)
        .print(output.layout(), screen)
}

/// Moves the fields of nested objects into the row.
fn flat(row: &Value, nested: &[&str]) -> Value {
    let mut flat = row.as_object().cloned().unwrap_or_default();
    for name in nested {
        if let Some(Value::Object(fields)) = flat.remove(*name) {
            flat.extend(fields);
        }
    }
    Value::Object(flat)
}

fn kernel(row: &Value) -> String {
    let kernel = row.get("has_kernel_evidence").and_then(Value::as_bool);
    match kernel {
        Some(true) => "yes",
        Some(false) => "no",
        None => view::UNKNOWN,
    }
    .to_owned()
}
