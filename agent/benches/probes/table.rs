//! Markdown tables, and formatting of figures.

use std::fmt::Write;

/// Markdown table.
#[derive(Debug)]
pub(crate) struct Table {
    text: String,
}

impl Table {
    /// Creates a table with a title and column names.
    pub(crate) fn new(title: &str, columns: &[&str]) -> Self {
        let rule = "|---".repeat(columns.len());
        let text = format!("## {title}\n\n| {} |\n{rule}|\n", columns.join(" | "));
        Self { text }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: &[String]) {
        // Writing to a string cannot fail.
        let _written = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    /// Returns the table, with a remark below it.
    pub(crate) fn end(self, remark: &str) -> String {
        format!("{}\n{remark}\n\n", self.text)
    }
}

/// Formats a whole number with thousands separators.
pub(crate) fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digit.is_ascii_digit() && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the minimum and the median.
pub(crate) fn least_and_median(figures: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some((*sorted.first()?, *sorted.get(sorted.len() / 2)?))
}

/// Formats two figures of one quantity.
pub(crate) fn pair((least, median): (f64, f64), decimals: usize) -> String {
    let text = |figure: f64| {
        let text = format!("{figure:.decimals$}");
        // Negative zero is shown as zero.
        match text.strip_prefix('-') {
            Some(digits) if !digits.contains(|digit| ('1'..='9').contains(&digit)) => {
                digits.to_owned()
            }
            _ => text,
        }
    };
    format!("{} / {}", text(least), text(median))
}
