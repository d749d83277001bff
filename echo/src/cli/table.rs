//! Tables: aligned text that fits a terminal, and CSV.

use std::io::{self, Write};

use comfy_table::{Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement};
use serde_json::Value;

use crate::cli::column::{Column, Layout};
use crate::cli::output::OutputArgs;
use crate::cli::screen::Screen;
use crate::cli::{json_output, view};

/// Number of blanks between two columns.
const GAP: u16 = 2;

/// Minimum width of a sentence in its column; below that, it is printed under its row.
const MIN_SENTENCE: u16 = 32;

/// Indentation of a sentence under its row.
const INDENT: u16 = 2;

/// Rows of JSON objects with the columns to print.
#[derive(Debug)]
pub(super) struct Table<'a> {
    columns: Vec<Column<'a>>,
    rows: &'a [Value],
}

impl<'a> Table<'a> {
    pub(super) fn new(columns: &[Column<'a>], rows: &'a [Value]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows,
        }
    }

    /// Removes the columns of this field if `is_absent`.
    pub(super) fn without_if(mut self, field: &str, is_absent: bool) -> Self {
        self.columns
            .retain(|column| !is_absent || column.field != field);
        self
    }

    /// Prints the table as text. On a terminal, sentences are wrapped to its width; if the table
    /// is too wide for that, its last columns are printed below each row. Elsewhere each row is one
    /// line.
    pub(super) fn print(&self, layout: Layout, screen: &mut Screen<'_>) -> io::Result<()> {
        let width = screen.width.filter(|_| !layout.is_wide);
        let columns = self.columns.iter().copied();
        let columns: Vec<Column<'_>> = columns
            .filter(|column| column.is_in_text(layout))
            .filter(|column| !self.is_unknown(*column))
            .collect();
        let mut table = self.draw(&columns, layout, screen.has_color);
        let lines = match width {
            Some(width) if is_crowded(&table, &columns, width) => {
                self.lines_with_details(&columns, layout, screen.has_color, width)
            }
            Some(width) => {
                fit(&mut table, &columns, width);
                table.lines().collect()
            }
            None => table.lines().collect::<Vec<_>>(),
        };
        for line in lines {
            writeln!(screen, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Writes the rows for programs: with all their fields as lines of JSON, or as CSV.
    pub(super) fn write_rows(&self, output: OutputArgs, out: &mut dyn Write) -> io::Result<()> {
        if output.is_jsonl() {
            return json_output::lines(self.rows, out);
        }
        self.write_csv(output.layout(), out)
    }

    /// Writes the rows as CSV, with numbers as in the JSON response; an unknown value is empty.
    pub(super) fn write_csv(&self, layout: Layout, out: &mut dyn Write) -> io::Result<()> {
        let columns: Vec<_> = self
            .columns
            .iter()
            .filter(|column| column.is_in_csv())
            .collect();
        let mut csv = csv::Writer::from_writer(out);
        if layout.has_header {
            csv.write_record(columns.iter().map(|column| column.csv_name))?;
        }
        for row in self.rows {
            csv.write_record(columns.iter().map(|column| exact(row.get(column.field))))?;
        }
        csv.flush()
    }

    /// Whether no row has a value for an optional column.
    fn is_unknown(&self, column: Column<'_>) -> bool {
        let mut rows = self.rows.iter();
        column.may_be_unknown() && rows.all(|row| column.shown(row) == view::UNKNOWN)
    }

    fn draw(&self, columns: &[Column<'_>], layout: Layout, has_color: bool) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        if has_color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        if layout.has_header {
            let title =
                |column: &Column<'_>| Cell::new(column.title).add_attribute(Attribute::Bold);
            table.set_header(columns.iter().map(title).collect::<Vec<_>>());
        }
        for row in self.rows {
            table.add_row(
                columns
                    .iter()
                    .map(|column| column.cell(row))
                    .collect::<Vec<_>>(),
            );
        }
        for (column, drawn) in columns.iter().zip(table.column_iter_mut()) {
            drawn.set_padding((0, GAP));
            if column.is_number() {
                drawn.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    /// Returns as many columns as fit the width, with the others below each row.
    fn lines_with_details(
        &self,
        columns: &[Column<'_>],
        layout: Layout,
        has_color: bool,
        width: u16,
    ) -> Vec<String> {
        let is_sentence = |column: &Column<'_>| column.is_sentence();
        let (sentences, mut fitting): (Vec<_>, Vec<_>) =
            columns.iter().copied().partition(is_sentence);
        let mut details = Vec::new();
        let mut table = self.draw(&fitting, layout, has_color);
        while fitting.len() > 1 && is_crowded(&table, &fitting, width) {
            details.extend(fitting.pop());
            table = self.draw(&fitting, layout, has_color);
        }
        details.reverse();
        let mut lines = table.lines();
        let n_headers = usize::from(layout.has_header);
        let mut all: Vec<String> = lines.by_ref().take(n_headers).collect();
        for (line, row) in lines.zip(self.rows) {
            all.push(line);
            let named = details.iter().filter_map(|column| column.detail(row));
            let named = named.collect::<Vec<_>>().join(", ");
            let below = sentences.iter().filter_map(|column| column.detail(row));
            for text in std::iter::once(named)
                .chain(below)
                .filter(|text| !text.is_empty())
            {
                all.extend(wrapped(&text, INDENT, width));
            }
        }
        all
    }
}

/// Whether a table is wider than the terminal, even with its sentences in a narrow column.
fn is_crowded(table: &comfy_table::Table, columns: &[Column<'_>], width: u16) -> bool {
    let widths = table.column_max_content_widths().into_iter().zip(columns);
    let needed = widths.map(|(content, column)| {
        let content = if column.is_sentence() {
            content.min(MIN_SENTENCE)
        } else {
            content
        };
        content.saturating_add(GAP)
    });
    needed.fold(0, u16::saturating_add) > width.saturating_add(GAP)
}

/// Wraps the sentences of a table, and only those, to fit the width.
fn fit(table: &mut comfy_table::Table, columns: &[Column<'_>], width: u16) {
    table.set_content_arrangement(ContentArrangement::Dynamic);
    // The gap after the last column is cut off.
    table.set_width(width.saturating_add(GAP));
    let has_sentence = columns.iter().any(|column| column.is_sentence());
    for (column, drawn) in columns.iter().zip(table.column_iter_mut()) {
        if has_sentence && !column.is_sentence() {
            drawn.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

/// Wraps a text to the width, with every line indented.
pub(super) fn wrapped(text: &str, indent: u16, width: u16) -> Vec<String> {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.force_no_tty();
    table.set_width(width);
    table.add_row([text]);
    for column in table.column_iter_mut() {
        column.set_padding((indent, 0));
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Writes a text, wrapped to the width of the terminal.
pub(super) fn write_lines(screen: &mut Screen<'_>, text: &str) -> io::Result<()> {
    match screen.width {
        Some(width) => writeln!(screen, "{}", wrapped(text, 0, width).join("\n")),
        None => writeln!(screen, "{text}"),
    }
}

/// A value as in the JSON response; items of lists are separated by blanks.
fn exact(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => {
            let items: Vec<String> = items.iter().map(|item| exact(Some(item))).collect();
            items.join(" ")
        }
        Some(other) => other.to_string(),
    }
}
