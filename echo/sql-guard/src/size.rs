//! How large things get: what an expression costs to bind and to evaluate, and how long its value can be.

use crate::limits::MAX_VALUE_BYTES;
use crate::refusal::Refusal;

/// What something costs, with everything that it is made of, as often as that is written or copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cost {
    /// Nodes that the binder and the planner make of it.
    pub(super) nodes: u64,
    /// Bytes of all the values that are made on the way, of one row.
    pub(super) made: u64,
    /// Steps of searching for patterns in one row.
    pub(super) searched: u64,
}

/// How large an expression gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// What it costs where it stands.
    pub(super) cost: Cost,
    /// What it costs again wherever somebody further out uses its value: a filter moves down to where values are made,
    /// with all that they are made of, but not into groups and windows.
    pub(super) copied: Cost,
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
    /// Bytes of the longest column but for those whose names say that they are long.
    pub(super) usual: u64,
    /// What it costs to use the most expensive column again.
    pub(super) copied: Cost,
    /// What it costs to use all of them again.
    pub(super) all: Cost,
    /// Tables that are read, counted as often as they are read.
    pub(super) tables: u64,
}

impl Cost {
    /// One node, and nothing made or searched.
    pub(super) const NODE: Self = Self {
        nodes: 1,
        made: 0,
        searched: 0,
    };

    /// Both.
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_add(other.nodes),
            made: self.made.saturating_add(other.made),
            searched: self.searched.saturating_add(other.searched),
        }
    }

    /// What is left of it without a part.
    pub(super) const fn less(self, part: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_sub(part.nodes),
            made: self.made.saturating_sub(part.made),
            searched: self.searched.saturating_sub(part.searched),
        }
    }

    /// So many times.
    pub(super) const fn times(self, times: u64) -> Self {
        Self {
            nodes: self.nodes.saturating_mul(times),
            made: self.made.saturating_mul(times),
            searched: self.searched.saturating_mul(times),
        }
    }

    /// The larger of both, in each respect.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.max(other.nodes),
            made: self.made.max(other.made),
            searched: self.searched.max(other.searched),
        }
    }
}

impl Size {
    /// A value of so many bytes that is there already.
    pub(super) const fn value(bytes: u64) -> Self {
        Self {
            cost: Cost::NODE,
            copied: Cost::NODE,
            bytes,
            columns: 1,
        }
    }

    /// A column, which only filters copy whole.
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

    /// Something whose parts are these, and whose value is as long as its longest part.
    pub(super) fn around(parts: &[Self]) -> Self {
        let whole = Self::value(0);
        parts.iter().fold(whole, |whole, part| Self {
            cost: whole.cost.plus(part.cost),
            copied: whole.copied.plus(part.copied),
            bytes: whole.bytes.max(part.bytes),
            columns: whole.columns.max(part.columns),
        })
    }

    /// The same with another length of its value.
    pub(super) const fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// The same at a higher cost.
    pub(super) const fn and(self, cost: Cost) -> Self {
        Self {
            cost: self.cost.plus(cost),
            copied: self.copied.plus(cost),
            ..self
        }
    }

    /// A value that is made anew.
    pub(super) fn made(self) -> Self {
        self.and(Cost {
            made: self.bytes,
            ..Cost::default()
        })
    }

    /// The value of a group or a window: nothing moves down below it.
    pub(super) const fn kept(self) -> Self {
        Self {
            copied: Cost::NODE,
            ..self
        }
    }

    /// Refuses what makes too long values.
    pub(super) fn check(self, what: &str) -> Result<Self, Refusal> {
        if self.bytes > MAX_VALUE_BYTES {
            return Err(Refusal::new(
                format!(
                    "{what} could make values of {} bytes, at most {MAX_VALUE_BYTES} are taken",
                    self.bytes
                ),
                "put fewer and shorter strings together; a column counts as 256 bytes, attrs as 16 KiB, left(attrs, 100) as \
                 400 bytes",
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
            usual: self.usual.max(other.usual),
            copied: self.copied.max(other.copied),
            all: self.all.plus(other.all),
            tables: self.tables.saturating_add(other.tables),
        }
    }

    /// Both below each other: what uses a column uses that of both, and its name is that of the first.
    pub(super) fn above(self, other: Self) -> Self {
        Self {
            columns: self.columns.max(other.columns),
            copied: self.copied.plus(other.copied),
            ..self.beside(other)
        }
        .renamed()
    }

    /// The same with names that say nothing of how long the columns are.
    pub(super) const fn renamed(self) -> Self {
        Self {
            usual: self.bytes,
            ..self
        }
    }

    /// The same with one more expression as a column, or several; `is_long` says so by its name.
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
