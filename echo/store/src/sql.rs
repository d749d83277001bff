//! Questions in SQL, and tables as answers.

use std::time::Duration;

use echo_core::error::{Code, Coded};
use echo_sql_guard::refusal::Refusal;
use serde_json::Value;

use crate::StoreError;

/// A question in SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlQuery {
    /// The statement as it was asked.
    pub text: String,
    /// Most rows of the answer.
    pub max_rows: usize,
    /// Most bytes of the rows as JSON.
    pub max_bytes: usize,
    /// How long it may run.
    pub deadline: Duration,
}

/// A table as answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlTable {
    /// The columns.
    pub columns: Vec<SqlColumn>,
    /// The rows, each as long as there are columns. Whole numbers beyond 2^53, decimals and numbers of 128 bits are
    /// texts, instants are RFC 3339, NaN and infinities are texts, too.
    pub rows: Vec<Vec<Value>>,
    /// Why there are no more rows although the statement has more; nothing when these are all.
    pub cut: Option<Truncation>,
    /// How long it took.
    pub elapsed: Duration,
}

/// What cut a table off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truncation {
    /// As many rows as were asked for.
    Rows,
    /// As many bytes as were asked for.
    Bytes,
}

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlColumn {
    /// Name.
    pub name: String,
    /// Type, as the database names it.
    pub kind: String,
}

/// A published view with its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewDocs {
    /// Name.
    pub name: String,
    /// What a row is.
    pub comment: String,
    /// Its columns.
    pub columns: Vec<ColumnDocs>,
}

/// A column of a published view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDocs {
    /// Name.
    pub name: String,
    /// Type, as the database names it.
    pub kind: String,
    /// What it means, with its unit.
    pub comment: String,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The guard does not let the statement through.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The statement is wrong, or meets a value that it cannot work on.
    #[error("{message}")]
    Wrong {
        /// What the engine says.
        message: String,
    },
    /// The statement needs more memory than it may take.
    #[error("the statement needs more memory than it may take")]
    TooMuchMemory,
    /// Others are being answered.
    #[error("{most} statements are running, which is as many as at a time; ask again later")]
    Crowded {
        /// Most statements at a time.
        most: usize,
    },
    /// It took too long.
    #[error("no answer within {} s", deadline.as_secs_f64())]
    Timeout {
        /// How long it was given.
        deadline: Duration,
    },
    /// The store failed.
    #[error("the store gave no answer")]
    Store(#[from] StoreError),
}

impl Coded for SqlError {
    fn code(&self) -> Code {
        match self {
            Self::Refused(_) | Self::TooMuchMemory => Code::Refused,
            Self::Wrong { .. } => Code::Invalid,
            Self::Crowded { .. } => Code::Busy,
            Self::Timeout { .. } => Code::Timeout,
            Self::Store(error) => error.code(),
        }
    }
}
