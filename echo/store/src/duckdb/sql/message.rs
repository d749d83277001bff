//! What a store and the process of a statement exchange: a line of JSON on standard input, and a JSON document on
//! standard output.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::duckdb::sql::problem::Problem;
use crate::sql::{SqlQuery, SqlTable};

/// Statement, and what its process needs to run it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Database file.
    pub(super) database: PathBuf,
    /// Statements that attach the lake whose rows are read, if there is one.
    pub(super) attach: Option<String>,
    /// Memory limit of the engine, bytes.
    pub(super) memory_bytes: u64,
    /// Statement with its limits.
    pub(super) query: SqlQuery,
}

/// Answer to a request.
pub(super) type Reply = Result<SqlTable, Problem>;
