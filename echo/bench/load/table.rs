//! Markdown tables and readable numbers.

use std::fmt::Write;

use hdrhistogram::Histogram;

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    text: String,
}

impl Table {
    /// Starts a table with a title, a description of the measurement, and column names.
    pub(crate) fn new(title: &str, description: &str, columns: &[&str]) -> Self {
        let rule = "|---".repeat(columns.len());
        let text = format!(
            "## {title}\n\n{description}\n\n| {} |\n{rule}|\n",
            columns.join(" | ")
        );
        Self { text }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: &[String]) {
        // Writing to a string cannot fail.
        let _written = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    /// Returns the table with a remark below it.
    pub(crate) fn end(self, remark: &str) -> String {
        match remark {
            "" => self.text + "\n",
            remark => format!("{}\n{remark}\n\n", self.text),
        }
    }
}

/// Creates an empty histogram of microseconds, up to ten minutes.
pub(crate) fn times() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 600_000_000, 3)?)
}

/// Formats a quantile of a histogram of microseconds as milliseconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds of an hour are far below 2^53"
)]
pub(crate) fn millis(times: &Histogram<u64>, quantile: f64) -> String {
    if times.is_empty() {
        return "-".to_owned();
    }
    let ms = times.value_at_quantile(quantile) as f64 / 1e3;
    match ms {
        ..10.0 => format!("{ms:.2} ms"),
        10.0..100.0 => format!("{ms:.1} ms"),
        _ => format!("{ms:.0} ms"),
    }
}

/// Formats a whole number with thousands separators.
pub(crate) fn whole(number: f64) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats megabytes.
pub(crate) fn megabytes(mb: f64) -> String {
    format!("{} MB", whole(mb))
}
