//! Columns of tables: a title, the field that it shows, and where it appears.

use comfy_table::{Attribute, Cell, Color};
use serde_json::Value;

use crate::cli::view;

/// How tables are printed as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Whether all columns are printed, on lines of any length.
    pub(super) is_wide: bool,
    /// Whether the header is printed.
    pub(super) has_header: bool,
}

/// Kind of the values of a column.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    /// State of an incident, coloured by its severity.
    State,
    /// Text that may be long.
    Sentence,
    /// Whole number.
    Count,
    Decimals(usize),
    Percent,
    Money,
    /// Any value, as JSON.
    Value {
        is_number: bool,
    },
    Computed(fn(&Value) -> String),
    ComputedNumber(fn(&Value) -> String),
}

/// Outputs in which a column appears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    All,
    /// Wide text and CSV.
    Wide,
    /// Text only.
    Text,
    /// Narrow text only.
    Narrow,
    /// Everywhere, but not in text if no row has a value.
    Known,
}

/// A column: its title, and the field that it shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'a> {
    pub(super) title: &'a str,
    pub(super) field: &'a str,
    kind: Kind,
    visibility: Visibility,
    /// Name in the header of CSV.
    pub(super) csv_name: &'a str,
}

impl<'a> Column<'a> {
    const fn new(title: &'a str, field: &'a str, kind: Kind) -> Self {
        Self {
            title,
            field,
            kind,
            visibility: Visibility::All,
            csv_name: field,
        }
    }

    /// A column of any values, named by its title in CSV, too.
    pub(super) const fn value(title: &'a str, field: &'a str, is_number: bool) -> Self {
        Self {
            csv_name: title,
            ..Self::new(title, field, Kind::Value { is_number })
        }
    }

    pub(super) const fn text(title: &'a str, field: &'a str) -> Self {
        Self::new(title, field, Kind::Text)
    }

    pub(super) const fn state() -> Self {
        Self::new("STATE", "state", Kind::State)
    }

    pub(super) const fn sentence(title: &'a str, field: &'a str) -> Self {
        Self::new(title, field, Kind::Sentence)
    }

    pub(super) const fn count(title: &'a str, field: &'a str) -> Self {
        Self::new(title, field, Kind::Count)
    }

    pub(super) const fn decimals(title: &'a str, field: &'a str, places: usize) -> Self {
        Self::new(title, field, Kind::Decimals(places))
    }

    pub(super) const fn percent(title: &'a str, field: &'a str) -> Self {
        Self::new(title, field, Kind::Percent)
    }

    pub(super) const fn money(title: &'a str, field: &'a str) -> Self {
        Self::new(title, field, Kind::Money)
    }

    /// A column whose text is computed from the row.
    pub(super) const fn computed(
        title: &'a str,
        field: &'a str,
        text: fn(&Value) -> String,
    ) -> Self {
        Self::new(title, field, Kind::Computed(text))
    }

    /// A column whose text is computed from the row and aligned as a number.
    pub(super) const fn number(title: &'a str, field: &'a str, text: fn(&Value) -> String) -> Self {
        Self::new(title, field, Kind::ComputedNumber(text))
    }

    /// Leaves the column out of narrow text.
    pub(super) const fn wide(mut self) -> Self {
        self.visibility = Visibility::Wide;
        self
    }

    /// Leaves the column out of CSV.
    pub(super) const fn text_only(mut self) -> Self {
        self.visibility = Visibility::Text;
        self
    }

    /// Leaves the column out of wide text and CSV.
    pub(super) const fn narrow(mut self) -> Self {
        self.visibility = Visibility::Narrow;
        self
    }

    /// Leaves the column out of text if no row has a value.
    pub(super) const fn if_known(mut self) -> Self {
        self.visibility = Visibility::Known;
        self
    }

    pub(super) const fn is_number(self) -> bool {
        matches!(
            self.kind,
            Kind::Count
                | Kind::Decimals(_)
                | Kind::Percent
                | Kind::Money
                | Kind::ComputedNumber(_)
                | Kind::Value { is_number: true }
        )
    }

    pub(super) const fn is_sentence(self) -> bool {
        matches!(self.kind, Kind::Sentence)
    }

    pub(super) fn is_in_text(self, layout: Layout) -> bool {
        match self.visibility {
            Visibility::All | Visibility::Text | Visibility::Known => true,
            Visibility::Wide => layout.is_wide,
            Visibility::Narrow => !layout.is_wide,
        }
    }

    pub(super) fn is_in_csv(self) -> bool {
        matches!(
            self.visibility,
            Visibility::All | Visibility::Wide | Visibility::Known
        )
    }

    pub(super) fn shown(self, row: &Value) -> String {
        match self.kind {
            Kind::Text | Kind::State | Kind::Sentence | Kind::Count => view::text(row, self.field),
            Kind::Decimals(places) => view::decimals(row, self.field, places),
            Kind::Percent => view::percent(row, self.field),
            Kind::Money => view::money(row, self.field),
            Kind::Value { .. } => view::value(row, self.field),
            Kind::Computed(text) | Kind::ComputedNumber(text) => text(row),
        }
    }

    pub(super) fn cell(self, row: &Value) -> Cell {
        let cell = Cell::new(self.shown(row));
        if !matches!(self.kind, Kind::State) {
            return cell;
        }
        match (
            view::text(row, "state").as_str(),
            view::text(row, "severity").as_str(),
        ) {
            ("open", "critical") => cell.fg(Color::Red),
            ("open", _) => cell.fg(Color::Yellow),
            _ => cell.add_attribute(Attribute::Dim),
        }
    }

    /// Whether the column is left out of text if no row has a value.
    pub(super) fn may_be_unknown(self) -> bool {
        self.visibility != Visibility::All
    }

    /// Title and value on one line, for a column that has no room in the table; `None` if the value
    /// is unknown.
    pub(super) fn detail(self, row: &Value) -> Option<String> {
        let value = Some(self.shown(row)).filter(|value| value != view::UNKNOWN)?;
        let is_name = self.title.chars().any(char::is_lowercase) || self.title.len() <= 3;
        Some(match self.title {
            title if self.is_sentence() || title.is_empty() => value,
            title if is_name => format!("{title} {value}"),
            title => format!("{} {value}", title.to_lowercase()),
        })
    }
}
