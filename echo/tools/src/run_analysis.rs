//! Runs one SELECT over the published views, for queries that no other tool covers.

use std::ops::RangeInclusive;
use std::time::Duration;

use echo_sql_guard::refusal::Refusal;
use echo_store::sql::{SqlError, SqlQuery, SqlTable, Truncation};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rounding::Precision;
use crate::scope::Scope;
use crate::tool::Tool;
use crate::{ToolError, operations, shard_hint};

const DEFAULT_ROWS: usize = 200;
const MAX_ROWS: usize = 10_000;
const DEFAULT_BYTES: usize = 48 * 1024;
const MIN_BYTES: usize = 1024;
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// SQL query over the published views.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunAnalysis {
    /// One SELECT in the DuckDB dialect, at most 16 KiB.
    #[schemars(length(min = 1, max = 16384))]
    pub sql: String,
    /// Maximum number of rows. Default: 200.
    #[schemars(range(min = 1, max = 10000))]
    pub max_rows: Option<usize>,
    /// Maximum size of the rows, bytes. Default: 49152.
    #[schemars(range(min = 1024, max = 4_194_304))]
    pub max_bytes: Option<usize>,
}

/// Result of the statement.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Analysis {
    /// Columns, in order.
    pub columns: Vec<Column>,
    /// Rows, one value per column. Integers beyond 2^53, DECIMAL, HUGEINT, NaN and infinities are
    /// strings; timestamps are RFC 3339.
    #[schemars(schema_with = "rows_schema")]
    pub rows: Vec<Vec<Value>>,
    /// Number of rows in the answer.
    pub row_count: usize,
    /// True when the statement has more rows than the answer.
    pub truncated: bool,
    /// Execution time, milliseconds.
    pub elapsed_ms: f64,
    /// Hint on the remaining rows when the answer is truncated, on operations that are spelled
    /// otherwise, and where other clusters are when they are on other shards.
    pub note: Option<String>,
}

/// Limits on the size of an answer.
#[derive(Debug, Clone, Copy)]
struct RowLimits {
    max_rows: usize,
    max_bytes: usize,
}

/// A column of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Column {
    /// Column name.
    pub name: String,
    /// SQL type.
    #[serde(rename = "type")]
    pub kind: String,
}

impl Tool for RunAnalysis {
    const NAME: &'static str = "fleet.cluster.run_analysis";
    const TITLE: &'static str = "Run analysis";
    const DESCRIPTION: &'static str = "Runs one read-only SELECT (DuckDB) for all else. \
        Views: verdicts, ranks, collectives, events, operation_classes, tcp_retransmits, op_waits, process_chains, process_calls, process_stacks, cost_hours, cost_hour_history, lost_time, verdict_history, dropped_slices, judged. \
        Columns have units; *_ns is Unix ns. SELECT * FROM view LIMIT 1 shows columns. Large results are truncated.";
    const NEEDS_SQL: bool = true;
    const PRECISION: Precision = Precision::Exact;
    type Answer = Analysis;

    async fn call(self, scope: &Scope<'_>) -> Result<Analysis, ToolError> {
        let context = scope.context;
        let spelling = operations::note(&self.sql);
        let max_rows = in_range("max_rows", self.max_rows, DEFAULT_ROWS, 1..=MAX_ROWS)?;
        let max_bytes = in_range(
            "max_bytes",
            self.max_bytes,
            DEFAULT_BYTES,
            MIN_BYTES..=MAX_BYTES,
        )?;
        let table = context.store.run_sql(SqlQuery {
            text: self.sql,
            max_rows,
            max_bytes,
            deadline: context.limits.deadline,
        });
        let answer = Analysis::from_table(
            table.await?,
            RowLimits {
                max_rows,
                max_bytes,
            },
        );
        let shard_note = shard_hint::note(context, None);
        let lake_note = shard_note
            .as_ref()
            .and_then(|_| shard_hint::lake_note(context));
        Ok(answer
            .with_note(spelling)
            .with_note(shard_note)
            .with_note(lake_note))
    }
}

impl Analysis {
    fn from_table(table: SqlTable, limits: RowLimits) -> Self {
        let column = |column: echo_store::sql::SqlColumn| Column {
            name: column.name,
            kind: column.kind,
        };
        Self {
            row_count: table.rows.len(),
            columns: table.columns.into_iter().map(column).collect(),
            rows: table.rows,
            truncated: table.cut.is_some(),
            elapsed_ms: millis(table.elapsed),
            note: table.cut.map(|cut| truncation_note(cut, limits)),
        }
    }
}

impl Analysis {
    /// Appends a note.
    fn with_note(self, note: Option<String>) -> Self {
        let notes: Vec<String> = self.note.into_iter().chain(note).collect();
        Self {
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            ..self
        }
    }
}

/// Schema of lists of values of any type. Some clients reject a schema that is just `true`.
fn rows_schema(_: &mut SchemaGenerator) -> Schema {
    let any = ["null", "boolean", "number", "string", "array", "object"];
    json_schema!({ "type": "array", "items": { "type": "array", "items": { "type": any } } })
}

/// Milliseconds, rounded to three decimals.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn truncation_note(cut: Truncation, limits: RowLimits) -> String {
    let RowLimits {
        max_rows: rows,
        max_bytes: bytes,
    } = limits;
    let advice =
        "aggregate or filter in SQL, or page with ORDER BY key and WHERE key > the last key";
    match cut {
        Truncation::Rows if rows < MAX_ROWS => {
            format!("truncated after {rows} rows: {advice}, or raise max_rows (at most {MAX_ROWS})")
        }
        Truncation::Rows => format!("truncated after {rows} rows: {advice}"),
        Truncation::Bytes if bytes < MAX_BYTES => {
            format!(
                "truncated at {bytes} bytes: {advice}, select fewer columns, or raise max_bytes (at most {MAX_BYTES})"
            )
        }
        Truncation::Bytes => {
            format!("truncated at {bytes} bytes: {advice}, or select fewer columns")
        }
    }
}

fn in_range(
    field: &str,
    value: Option<usize>,
    default: usize,
    range: RangeInclusive<usize>,
) -> Result<usize, ToolError> {
    let value = value.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    let message = format!(
        "{value} is not between {} and {}",
        range.start(),
        range.end()
    );
    Err(ToolError::invalid(field, message))
}

impl From<SqlError> for ToolError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Refused(Refusal { reason, hint }) => Self::Refused { reason, hint },
            SqlError::TooMuchMemory => Self::Refused {
                reason: error.to_string(),
                hint: "join on keys, group before joining, or use a shorter time range".to_owned(),
            },
            SqlError::Wrong { message } => Self::invalid("sql", message),
            SqlError::Overloaded { most } => Self::Overloaded {
                limit: u32::try_from(most).unwrap_or(u32::MAX),
            },
            SqlError::Overtaken => Self::Overtaken,
            SqlError::Timeout { deadline } => Self::Timeout { deadline },
            SqlError::Store(error) => Self::Store(error),
        }
    }
}

#[cfg(test)]
mod tests;
