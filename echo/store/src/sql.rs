//! SQL queries and their result tables.

use std::time::Duration;

use echo_core::error::{Code, Coded};
use echo_sql_guard::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::StoreError;

/// SQL query with limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqlQuery {
    /// Statement as received.
    pub text: String,
    /// Maximum number of rows.
    pub max_rows: usize,
    /// Maximum size of the rows as JSON, bytes.
    pub max_bytes: usize,
    /// Maximum run time.
    pub deadline: Duration,
}

/// Result table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqlTable {
    /// Columns.
    pub columns: Vec<SqlColumn>,
    /// Rows, each with one value per column. Integers beyond 2^53, decimals, 128-bit integers, NaN
    /// and infinities are strings; timestamps are RFC 3339.
    pub rows: Vec<Vec<Value>>,
    /// Limit that truncated the table; `None` if the table is complete.
    pub cut: Option<Truncation>,
    /// Run time.
    pub elapsed: Duration,
}

/// Limit that truncated a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Truncation {
    /// Maximum number of rows.
    Rows,
    /// Maximum number of bytes.
    Bytes,
}

/// Column of a result table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqlColumn {
    /// Name.
    pub name: String,
    /// Type, as the database names it.
    pub kind: String,
}

/// Documentation of a published view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewDocs {
    /// Name.
    pub name: String,
    /// Meaning of a row.
    pub comment: String,
    /// Columns.
    pub columns: Vec<ColumnDocs>,
}

/// Documentation of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDocs {
    /// Name.
    pub name: String,
    /// Type, as the database names it.
    pub kind: String,
    /// Meaning, with the unit.
    pub comment: String,
}

/// Error of a query.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The guard refused the statement.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The statement is invalid, or a value in it cannot be processed.
    #[error("{message}")]
    Wrong {
        /// Message of the engine.
        message: String,
    },
    /// The statement needs more memory than allowed.
    #[error("the statement needs more memory than allowed")]
    TooMuchMemory,
    /// The maximum number of statements is running.
    #[error("the limit of {most} concurrent or long statements is reached; retry later")]
    Overloaded {
        /// Maximum number of concurrent statements.
        most: usize,
    },
    /// The statement exceeded its deadline.
    #[error("the statement took longer than {} s", deadline.as_secs_f64())]
    Timeout {
        /// Time limit of the statement.
        deadline: Duration,
    },
    /// The statement was stopped so that the database file could be written.
    #[error("the statement was stopped so that the database file could be written; retry it")]
    Overtaken,
    /// The store failed.
    #[error("the store failed to run the statement")]
    Store(#[from] StoreError),
}

impl Coded for SqlError {
    fn code(&self) -> Code {
        match self {
            Self::Refused(_) | Self::TooMuchMemory => Code::Refused,
            Self::Wrong { .. } => Code::Invalid,
            Self::Overloaded { .. } | Self::Overtaken => Code::Busy,
            Self::Timeout { .. } => Code::Timeout,
            Self::Store(error) => error.code(),
        }
    }
}
