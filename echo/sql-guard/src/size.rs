//! Size estimates: cost of binding and evaluating an expression, and maximum length of its value.

use crate::limits::MAX_VALUE_BYTES;
use crate::refusal::Refusal;

/// Cost of an expression with all its parts, each counted as often as it is written or copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cost {
    /// Nodes after binding and planning.
    pub(super) nodes: u64,
    /// Size of all intermediate values, bytes per row.
    pub(super) made: u64,
    /// Search steps per row.
    pub(super) searched: u64,
}

/// Size of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Cost where it is written.
    pub(super) cost: Cost,
    /// Additional cost for each outer use of its value: a filter is moved down to the computation
    /// of values, with all their parts, but not into groups and windows.
    pub(super) copied: Cost,
    /// Upper estimate of the size of its value, bytes.
    pub(super) bytes: u64,
    /// Number of columns that it expands to: more than one if it contains a star.
    pub(super) columns: u64,
}

/// Size of the rows of a table or query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// Number of columns.
    pub(super) columns: u64,
    /// Size of the longest column, bytes.
    pub(super) bytes: u64,
    /// Size of the longest column, except those whose names mark them as long, bytes.
    pub(super) usual: u64,
    /// Cost of another use of the most expensive column.
    pub(super) copied: Cost,
    /// Cost of another use of all columns.
    pub(super) all: Cost,
    /// Number of tables that are read, counted for each read.
    pub(super) tables: u64,
}

impl Cost {
    /// One node, without intermediate values or searches.
    pub(super) const NODE: Self = Self {
        nodes: 1,
        made: 0,
        searched: 0,
    };

    /// Sum of both.
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_add(other.nodes),
            made: self.made.saturating_add(other.made),
            searched: self.searched.saturating_add(other.searched),
        }
    }

    /// Difference to a part.
    pub(super) const fn less(self, part: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_sub(part.nodes),
            made: self.made.saturating_sub(part.made),
            searched: self.searched.saturating_sub(part.searched),
        }
    }

    /// Multiple.
    pub(super) const fn times(self, times: u64) -> Self {
        Self {
            nodes: self.nodes.saturating_mul(times),
            made: self.made.saturating_mul(times),
            searched: self.searched.saturating_mul(times),
        }
    }

    /// Maximum of both, by component.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.max(other.nodes),
            made: self.made.max(other.made),
            searched: self.searched.max(other.searched),
        }
    }
}

impl Size {
    /// Stored value of `bytes` bytes.
    pub(super) const fn value(bytes: u64) -> Self {
        Self {
            cost: Cost::NODE,
            copied: Cost::NODE,
            bytes,
            columns: 1,
        }
    }

    /// Column, which only filters copy as a whole.
    pub(super) fn column(bytes: u64, copied: Cost) -> Self {
        let copied = copied.max(Cost::NODE);
        Self {
            cost: Cost {
                nodes: copied.nodes,
                ..Cost::default()
            },
            copied,
            ..Self::value(bytes)
        }
    }

    /// Expression with these parts, whose value is as long as that of its longest part.
    pub(super) fn around(parts: &[Self]) -> Self {
        let whole = Self::value(0);
        parts.iter().fold(whole, |whole, part| Self {
            cost: whole.cost.plus(part.cost),
            copied: whole.copied.plus(part.copied),
            bytes: whole.bytes.max(part.bytes),
            columns: whole.columns.max(part.columns),
        })
    }

    /// Same cost with another size of the value.
    pub(super) const fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Same size with additional cost.
    pub(super) const fn and(self, cost: Cost) -> Self {
        Self {
            cost: self.cost.plus(cost),
            copied: self.copied.plus(cost),
            ..self
        }
    }

    /// Counts the value as an intermediate one.
    pub(super) fn made(self) -> Self {
        self.and(Cost {
            made: self.bytes,
            ..Cost::default()
        })
    }

    /// Value of a group or a window: filters are not moved below it.
    pub(super) const fn kept(self) -> Self {
        Self {
            copied: Cost::NODE,
            ..self
        }
    }

    /// Refuses values that are too long.
    pub(super) fn check(self, what: &str) -> Result<Self, Refusal> {
        if self.bytes > MAX_VALUE_BYTES {
            return Err(Refusal::new(
                format!(
                    "{what} could produce values of {} bytes; the limit is {MAX_VALUE_BYTES}",
                    self.bytes
                ),
                "concatenate fewer and shorter strings; a column counts as 256 bytes, attrs as 16 KiB, left(attrs, 100) as \
                 400 bytes",
            ));
        }
        Ok(self)
    }
}

impl Shape {
    /// Columns of both, side by side.
    pub(super) fn beside(self, other: Self) -> Self {
        Self {
            columns: self.columns.saturating_add(other.columns),
            bytes: self.bytes.max(other.bytes),
            usual: self.usual.max(other.usual),
            copied: self.copied.max(other.copied),
            all: self.all.plus(other.all),
            tables: self.tables.saturating_add(other.tables),
        }
    }

    /// Rows of both, one after the other: a use of a column uses that of both, and its name is that
    /// of the first.
    pub(super) fn above(self, other: Self) -> Self {
        Self {
            columns: self.columns.max(other.columns),
            copied: self.copied.plus(other.copied),
            ..self.beside(other)
        }
        .renamed()
    }

    /// Same shape with column names that do not mark long columns.
    pub(super) const fn renamed(self) -> Self {
        Self {
            usual: self.bytes,
            ..self
        }
    }

    /// Adds an expression as one or several columns; `is_long` if its name marks a long column.
    pub(super) fn with(self, size: Size, is_long: bool) -> Self {
        let usual = if is_long { 0 } else { size.bytes };
        Self {
            columns: self.columns.saturating_add(size.columns),
            bytes: self.bytes.max(size.bytes),
            usual: self.usual.max(usual),
            copied: self.copied.max(size.copied),
            all: self.all.plus(size.copied.times(size.columns)),
            ..self
        }
    }
}
