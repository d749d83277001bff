//! Text output of tool results. Fields are looked up by name: unknown fields of a newer server are
//! ignored, and missing fields print as a dash.

use std::io::{self, Write};

use echo_core::text::visible;
use serde_json::Value;

/// Placeholder for an unknown value.
const UNKNOWN: &str = "-";

/// Escapes control characters in all strings, because names come from outside and could overwrite
/// the terminal.
pub(super) fn sanitize(answer: Value) -> Value {
    match answer {
        Value::String(text) => Value::String(visible(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(sanitize).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields
                .map(|(name, value)| (visible(&name).into_owned(), sanitize(value)))
                .collect()
        }
        plain => plain,
    }
}

/// Returns a text field; a dash if absent.
pub(super) fn text(value: &Value, name: &str) -> String {
    match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => UNKNOWN.to_owned(),
    }
}

/// Returns a number; `None` if absent.
pub(super) fn number(value: &Value, name: &str) -> Option<f64> {
    value.get(name)?.as_f64()
}

/// Formats a number with this many decimals; a dash if absent.
pub(super) fn decimals(value: &Value, name: &str, places: usize) -> String {
    number(value, name).map_or_else(|| UNKNOWN.to_owned(), |number| format!("{number:.places$}"))
}

/// Formats a share as a percentage; a dash if absent.
pub(super) fn percent(value: &Value, name: &str) -> String {
    number(value, name).map_or_else(
        || UNKNOWN.to_owned(),
        |share| format!("{:.1} %", share * 100.0),
    )
}

/// Returns the items of a list; empty if absent.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Formats the cluster and the window of a result as a heading.
pub(super) fn heading(answer: &Value) -> String {
    let cluster = answer.get("cluster").and_then(Value::as_str);
    let window = answer.get("window").unwrap_or(&Value::Null);
    format!(
        "{}, {} to {}",
        cluster.map_or("all clusters", |cluster| cluster),
        text(window, "from"),
        text(window, "to"),
    )
}

/// Formats the data quality of a result as a sentence.
pub(super) fn quality(answer: &Value) -> String {
    let quality = answer.get("data_quality").unwrap_or(&Value::Null);
    let (reporting, expected) = (
        text(quality, "ranks_reporting"),
        text(quality, "ranks_expected"),
    );
    let age = number(quality, "last_event_age_s").map_or_else(String::new, |age| {
        format!(", last event {age:.1} s before the end")
    });
    let note = quality
        .get("note")
        .and_then(Value::as_str)
        .map_or_else(String::new, |note| format!("\nnote: {note}"));
    format!("{reporting} of {expected} ranks report{age}{note}")
}

/// Prints rows under a header with aligned columns; the last column is not padded.
pub(super) fn table(out: &mut dyn Write, header: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let width_of = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        let title = header.get(column).map_or(0, |title| title.chars().count());
        cells.chain([title]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width_of).collect();
    let titles = header.iter().map(|title| (*title).to_owned()).collect();
    for row in std::iter::once(&titles).chain(rows) {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line: Vec<String> = cells.collect();
        writeln!(out, "{}", line.join("  ").trim_end())?;
    }
    Ok(())
}
