//! How large things get: what an expression costs to bind, and how long its value can be.

use crate::sql_guard::limits::{COLUMN_BYTES, MAX_VALUE_BYTES};
use crate::sql_guard::refusal::Refusal;

/// How large an expression gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Nodes that the binder makes of it.
    pub(super) nodes: u64,
    /// Bytes of its value, roughly and rather too many.
    pub(super) bytes: u64,
    /// Columns that it stands for: more than one with a star in it.
    pub(super) columns: u64,
}

/// How large the rows of a table or query get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// Number of columns.
    pub(super) columns: u64,
    /// Bytes of the longest column.
    pub(super) bytes: u64,
    /// Tables that are read, counted as often as they are read.
    pub(super) tables: u64,
}

impl Size {
    /// A value of so many bytes.
    pub(super) const fn value(bytes: u64) -> Self {
        Self {
            nodes: 1,
            bytes,
            columns: 1,
        }
    }

    /// Something whose parts are these, and whose value is as long as its longest part.
    pub(super) fn around(parts: &[Self]) -> Self {
        let whole = Self::value(0);
        parts.iter().fold(whole, |whole, part| Self {
            nodes: whole.nodes.saturating_add(part.nodes),
            bytes: whole.bytes.max(part.bytes),
            columns: whole.columns.max(part.columns),
        })
    }

    /// The same with another length of its value.
    pub(super) const fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Refuses what makes too long values.
    pub(super) fn check(self, what: &str) -> Result<Self, Refusal> {
        if self.bytes > MAX_VALUE_BYTES {
            return Err(Refusal::new(
                format!(
                    "{what} could make values of {} bytes, at most {MAX_VALUE_BYTES} are taken",
                    self.bytes
                ),
                "put fewer and shorter strings together; a column counts as 256 bytes, a collected list or string as 16 KiB",
            ));
        }
        Ok(self)
    }
}

impl Shape {
    /// Both beside each other.
    pub(super) fn beside(self, other: Self) -> Self {
        Self {
            columns: self.columns.saturating_add(other.columns),
            bytes: self.bytes.max(other.bytes),
            tables: self.tables.saturating_add(other.tables),
        }
    }

    /// Both below each other.
    pub(super) fn above(self, other: Self) -> Self {
        Self {
            columns: self.columns.max(other.columns),
            ..self.beside(other)
        }
    }

    /// One published view.
    pub(super) const fn view(columns: u64) -> Self {
        Self {
            columns,
            bytes: COLUMN_BYTES,
            tables: 1,
        }
    }
}
