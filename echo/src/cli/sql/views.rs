//! List of the views that SQL can query.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::cli::column::Column;
use crate::cli::output::OutputArgs;
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::view::{list, text};

/// Columns of CSV: one row per column of a view.
const COLUMNS: [Column<'_>; 4] = [
    Column::text("", "view"),
    Column::text("", "column"),
    Column::text("", "type"),
    Column::text("", "comment"),
];

/// Prints the views with their columns.
pub(super) fn print(answer: &Value, output: OutputArgs, screen: &mut Screen<'_>) -> io::Result<()> {
    if output.has_rows_only() {
        return Table::new(&COLUMNS, &rows(answer)).write_rows(output, screen);
    }
    for view in list(answer, "views") {
        writeln!(screen, "{}: {}", text(view, "name"), text(view, "comment"))?;
        for column in list(view, "columns") {
            let (name, kind) = (text(column, "name"), text(column, "type"));
            writeln!(
                screen,
                "  {name:<20} {kind:<12} {}",
                text(column, "comment")
            )?;
        }
        writeln!(screen)?;
    }
    Ok(())
}

fn rows(answer: &Value) -> Vec<Value> {
    let views = list(answer, "views").iter();
    let rows = views.flat_map(|view| {
        let row = |column: &Value| {
            json!({
                "view": text(view, "name"),
                "column": text(column, "name"),
                "type": text(column, "type"),
                "comment": text(column, "comment"),
            })
        };
        list(view, "columns").iter().map(row)
    });
    rows.collect()
}
