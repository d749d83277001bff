//! Arrow columns in both directions.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, StringArray,
    UInt32Array, UInt64Array,
};
use arrow::datatypes::UInt32Type;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use duckdb::Connection;

use crate::duckdb::engine::EngineResult;

/// Rows per append: one vector of the engine, and few enough to stay in the CPU cache while the
/// columns are built one after the other.
const CHUNK: usize = 2048;

/// Columns under construction.
#[derive(Debug)]
pub(super) struct Columns<'r, R> {
    rows: &'r [R],
    made: Vec<(&'static str, ArrayRef)>,
}

/// Declares a method that adds a column of one type.
macro_rules! add_column {
    ($name:ident, $optional:ident, $array:ty, $value:ty) => {
        /// Adds a column.
        pub(super) fn $name(self, name: &'static str, value: impl Fn(&'r R) -> $value) -> Self {
            let column = <$array>::from_iter_values(self.rows.iter().map(value));
            self.with(name, Arc::new(column))
        }

        /// Adds a nullable column.
        pub(super) fn $optional(
            self,
            name: &'static str,
            value: impl Fn(&'r R) -> Option<$value>,
        ) -> Self {
            let column: $array = self.rows.iter().map(value).collect();
            self.with(name, Arc::new(column))
        }
    };
}

impl<'r, R> Columns<'r, R> {
    /// Starts without columns.
    pub(super) const fn new(rows: &'r [R]) -> Self {
        Self {
            rows,
            made: Vec::new(),
        }
    }

    add_column!(u32, maybe_u32, UInt32Array, u32);
    add_column!(u64, maybe_u64, UInt64Array, u64);
    add_column!(i64, maybe_i64, Int64Array, i64);
    add_column!(f64, maybe_f64, Float64Array, f64);
    add_column!(text, maybe_text, StringArray, &'r str);

    /// Adds a column of bytes.
    pub(super) fn bytes(self, name: &'static str, value: impl Fn(&'r R) -> &'r [u8]) -> Self {
        let column = BinaryArray::from_iter_values(self.rows.iter().map(value));
        self.with(name, Arc::new(column))
    }

    /// Adds a column of booleans.
    pub(super) fn bool(self, name: &'static str, value: impl Fn(&'r R) -> bool) -> Self {
        let column: BooleanArray = self.rows.iter().map(|row| Some(value(row))).collect();
        self.with(name, Arc::new(column))
    }

    /// Adds a nullable column of lists.
    pub(super) fn maybe_list<I: IntoIterator<Item = Option<u32>>>(
        self,
        name: &'static str,
        value: impl Fn(&'r R) -> Option<I>,
    ) -> Self {
        let column =
            ListArray::from_iter_primitive::<UInt32Type, _, _>(self.rows.iter().map(value));
        self.with(name, Arc::new(column))
    }

    fn with(mut self, name: &'static str, column: ArrayRef) -> Self {
        self.made.push((name, column));
        self
    }
}

/// Appends the rows to the table, in the current transaction. `columns` builds all columns of the
/// table in order: passing names to the appender would cost several milliseconds each time.
pub(super) fn append<R>(
    connection: &Connection,
    table: &'static str,
    rows: &[R],
    columns: impl for<'r> Fn(Columns<'r, R>) -> Columns<'r, R>,
) -> EngineResult<()> {
    let mut appender = None;
    for chunk in rows.chunks(CHUNK) {
        let made = columns(Columns::new(chunk)).made;
        let appender = match &mut appender {
            Some(appender) => appender,
            none => {
                if cfg!(debug_assertions) {
                    check_order(connection, table, &made)?;
                }
                none.insert(connection.appender(table)?)
            }
        };
        let batch = RecordBatch::try_from_iter(made).map_err(malformed)?;
        appender.append_record_batch(batch)?;
    }
    // Dropping an appender flushes it, too, but discards the error.
    appender.map_or(Ok(()), |mut appender| appender.flush())
}

fn check_order(
    connection: &Connection,
    table: &'static str,
    made: &[(&'static str, ArrayRef)],
) -> EngineResult<()> {
    // The engine's list of all columns would take a quarter of the time of an append.
    let columns = format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid");
    let mut statement = connection.prepare(&columns)?;
    let names = statement.query_map([], |row| row.get(0))?;
    let names: Vec<String> = names.collect::<EngineResult<_>>()?;
    if made.iter().map(|(name, _)| *name).eq(&names) {
        return Ok(());
    }
    Err(malformed(Unexpected(table)))
}

/// A column of `batch`.
pub(super) fn column<'b, A: Array + 'static>(
    batch: &'b RecordBatch,
    name: &'static str,
) -> EngineResult<&'b A> {
    let column = batch
        .column_by_name(name)
        .and_then(|column| column.as_any().downcast_ref());
    column.ok_or_else(|| malformed(Unexpected(name)))
}

/// A stored value that was never written by Echo.
#[derive(Debug, thiserror::Error)]
#[error("{0} holds an unexpected value")]
pub(super) struct Unexpected(pub(super) &'static str);

/// Wraps an error of this module as an engine error, which is what callers report.
pub(super) fn malformed(error: impl Into<Malformed>) -> duckdb::Error {
    duckdb::Error::ToSqlConversionFailure(Box::new(error.into()))
}

/// Error of building or reading rows.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum Malformed {
    /// Arrow rejected the columns.
    Arrow(#[from] ArrowError),
    /// The rows hold unexpected values.
    Unexpected(#[from] Unexpected),
    /// A value cannot be encoded as JSON.
    Json(#[from] serde_json::Error),
}

/// Value of a nullable numeric column in a row.
macro_rules! maybe {
    ($column:expr, $row:expr) => {
        $column.is_valid($row).then(|| $column.value($row))
    };
}
pub(super) use maybe;
