//! Causal chains and stacks: a block of lines for each.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{ProcessArgs, write_wrapped};
use crate::cli::column::{Column, Layout};
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::view::{UNKNOWN, list, percent, text};

/// Columns of the lines of a block.
const LINES: [Column<'_>; 2] = [Column::text("", "label"), Column::sentence("", "text")];

/// Fields of the columns of CSV.
const CHAINS: [&str; 13] = [
    "cluster",
    "node_id",
    "job",
    "rank",
    "pid",
    "process",
    "cause",
    "severity",
    "state",
    "share",
    "since",
    "last_seen",
    "summary",
];
const STACKS: [&str; 10] = [
    "cluster", "node_id", "job", "rank", "pid", "process", "function", "samples", "share", "stack",
];

/// Prints causal chains.
pub(super) fn chains(
    answer: &Value,
    args: &ProcessArgs,
    screen: &mut Screen<'_>,
) -> io::Result<()> {
    let (output, chains) = (args.client.output, list(answer, "chains"));
    if output.has_rows_only() {
        return Table::new(&columns(CHAINS), chains).write_csv(output.layout(), screen);
    }
    if chains.is_empty() {
        return write_wrapped(&text(answer, "summary"), screen);
    }
    chains.iter().try_for_each(|chain| {
        writeln!(screen)?;
        print_chain(chain, screen)
    })
}

/// Prints one causal chain.
pub(in crate::cli) fn print_chain(chain: &Value, screen: &mut Screen<'_>) -> io::Result<()> {
    let peers = chain.get("peers").unwrap_or(&Value::Null);
    let peers = match percent(peers, "median_share").as_str() {
        UNKNOWN => String::new(),
        share => format!(", peers {share}"),
    };
    let (severity, cause) = (text(chain, "severity"), text(chain, "cause"));
    let title = format!("{severity} {cause}: {}", process(chain));
    let lost = format!("{} of its time{peers}", percent(chain, "share"));
    let since = format!(
        "{}, last seen {} ({})",
        text(chain, "since"),
        text(chain, "last_seen"),
        text(chain, "state")
    );
    let lines = [
        ("lost", lost),
        ("because", text(chain, "summary")),
        ("chain", joined(chain, "links", " -> ")),
        ("where", joined(chain, "stack", " <- ")),
        ("since", since),
        ("do", joined(chain, "advice", "; or: ")),
    ];
    let lines = lines.iter().map(|(label, text)| (*label, text.as_str()));
    print_block(&title, lines, screen)
}

/// Prints stacks.
pub(super) fn stacks(
    answer: &Value,
    args: &ProcessArgs,
    screen: &mut Screen<'_>,
) -> io::Result<()> {
    let (output, stacks) = (args.client.output, list(answer, "stacks"));
    if output.has_rows_only() {
        let rows: Vec<Value> = stacks.iter().map(with_stack_on_one_line).collect();
        return Table::new(&columns(STACKS), &rows).write_csv(output.layout(), screen);
    }
    stacks.iter().try_for_each(|stack| {
        writeln!(screen)?;
        let title = format!(
            "{} of {}, samples: {}",
            percent(stack, "share"),
            process(stack),
            text(stack, "samples")
        );
        let function = stack.get("function").and_then(Value::as_str);
        let function = function.map(|name| ("in", name));
        let frames = list(stack, "stack").iter().filter_map(Value::as_str);
        let frames = frames.zip(std::iter::once("stack").chain(std::iter::repeat("")));
        let frames = frames.map(|(frame, label)| (label, frame));
        print_block(&title, function.into_iter().chain(frames), screen)
    })
}

/// Columns of CSV, which are named by their fields.
fn columns<const N: usize>(fields: [&'static str; N]) -> [Column<'static>; N] {
    fields.map(|field| Column::text("", field))
}

/// Names a process.
fn process(row: &Value) -> String {
    let rank = row.get("rank").and_then(Value::as_u64);
    let rank = rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
    format!(
        "{rank}{} ({}) on {}",
        text(row, "process"),
        text(row, "pid"),
        text(row, "node_id")
    )
}

fn joined(row: &Value, name: &str, separator: &str) -> String {
    let parts = list(row, name).iter().filter_map(Value::as_str);
    parts.collect::<Vec<_>>().join(separator)
}

fn with_stack_on_one_line(row: &Value) -> Value {
    let mut fields = row.as_object().cloned().unwrap_or_default();
    fields.insert("stack".to_owned(), json!(joined(row, "stack", " <- ")));
    Value::Object(fields)
}

/// Prints a title and labelled lines; those without a text are left out.
fn print_block<'a>(
    title: &str,
    lines: impl Iterator<Item = (&'a str, &'a str)>,
    screen: &mut Screen<'_>,
) -> io::Result<()> {
    write_wrapped(title, screen)?;
    let lines = lines.filter(|(_, text)| !text.is_empty());
    let rows = lines.map(|(label, text)| json!({ "label": format!("  {label}"), "text": text }));
    let rows: Vec<Value> = rows.collect();
    let layout = Layout {
        is_wide: false,
        has_header: false,
    };
    Table::new(&LINES, &rows).print(layout, screen)
}
