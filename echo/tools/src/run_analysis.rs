//! Which answer has a question that no other tool knows? One SELECT over the published views.

use std::time::Duration;

use echo_sql_guard::refusal::Refusal;
use echo_store::sql::{SqlError, SqlQuery, SqlTable, Truncation};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::scope::Scope;
use crate::tool::Tool;
use crate::{ToolError, shard_hint};

const DEFAULT_ROWS: usize = 200;
const MAX_ROWS: usize = 10_000;
const DEFAULT_BYTES: usize = 48 * 1024;
const MIN_BYTES: usize = 1024;
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// One SELECT over the published views.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunAnalysis {
    /// One SELECT in the dialect of DuckDB, at most 16 KiB.
    #[schemars(length(min = 1, max = 16384))]
    pub sql: String,
    /// Most rows in the answer, 200 when absent.
    #[schemars(range(min = 1, max = 10000))]
    pub max_rows: Option<usize>,
    /// Most bytes of rows in the answer, 48 KiB when absent.
    #[schemars(range(min = 1024, max = 4_194_304))]
    pub max_bytes: Option<usize>,
}

/// The rows that a statement gives.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Analysis {
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// The rows, each as long as there are columns. Whole numbers beyond 2^53, DECIMAL and HUGEINT are strings, as are
    /// NaN and infinities; instants are RFC 3339.
    #[schemars(schema_with = "rows")]
    pub rows: Vec<Vec<Value>>,
    /// Number of rows in the answer.
    pub row_count: usize,
    /// Whether the statement has more rows than the answer.
    pub truncated: bool,
    /// How long it took, milliseconds.
    pub elapsed_ms: f64,
    /// How to get more when it is truncated, and where other clusters are when several Echos share them.
    pub note: Option<String>,
}

/// A column of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Column {
    /// Name.
    pub name: String,
    /// Type in SQL.
    #[serde(rename = "type")]
    pub kind: String,
}

impl Tool for RunAnalysis {
    const NAME: &'static str = "fleet.cluster.run_analysis";
    const TITLE: &'static str = "Run analysis";
    const DESCRIPTION: &'static str = "One read-only SELECT (DuckDB dialect) for what other tools do not answer. \
        Views: verdicts, ranks, collectives, events, op_waits, cost_hours, cost_hour_history, lost_time, verdict_history, dropped_slices, judged. \
        Units are in column names; *_ns is Unix nanoseconds. SELECT * FROM view LIMIT 1 shows columns. Aggregate in SQL: answers are cut off.";
    const NEEDS_SQL: bool = true;
    type Answer = Analysis;

    async fn call(self, scope: &Scope<'_>) -> Result<Analysis, ToolError> {
        let context = scope.context;
        let max_rows = within("max_rows", self.max_rows, DEFAULT_ROWS, (1, MAX_ROWS))?;
        let max_bytes = within(
            "max_bytes",
            self.max_bytes,
            DEFAULT_BYTES,
            (MIN_BYTES, MAX_BYTES),
        )?;
        let table = context.store.run_sql(SqlQuery {
            text: self.sql,
            max_rows,
            max_bytes,
            deadline: context.limits.deadline,
        });
        let answer = Analysis::of(table.await?, (max_rows, max_bytes));
        Ok(answer.with_note(shard_hint::note(context, None)))
    }
}

impl Analysis {
    fn of(table: SqlTable, limits: (usize, usize)) -> Self {
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
            note: table.cut.map(|cut| more(cut, limits)),
        }
    }
}

impl Analysis {
    /// The same with one thing more to know.
    fn with_note(self, more: Option<String>) -> Self {
        let notes: Vec<String> = self.note.into_iter().chain(more).collect();
        Self {
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            ..self
        }
    }
}

/// Lists of values of any type. Some clients do not take a schema that is nothing but `true`.
fn rows(_: &mut SchemaGenerator) -> Schema {
    let any = ["null", "boolean", "number", "string", "array", "object"];
    json_schema!({ "type": "array", "items": { "type": "array", "items": { "type": any } } })
}

/// Milliseconds with three digits behind the point.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn more(cut: Truncation, (rows, bytes): (usize, usize)) -> String {
    let advice =
        "aggregate or filter in SQL, or go on with ORDER BY a key, WHERE key > the last one";
    match cut {
        Truncation::Rows if rows < MAX_ROWS => {
            format!("cut off after {rows} rows: {advice}, or raise max_rows (at most {MAX_ROWS})")
        }
        Truncation::Rows => format!("cut off after {rows} rows: {advice}"),
        Truncation::Bytes if bytes < MAX_BYTES => {
            format!(
                "cut off at {bytes} bytes: {advice}, name fewer columns, or raise max_bytes (at most {MAX_BYTES})"
            )
        }
        Truncation::Bytes => format!("cut off at {bytes} bytes: {advice}, or name fewer columns"),
    }
}

fn within(
    field: &str,
    asked: Option<usize>,
    usual: usize,
    (least, most): (usize, usize),
) -> Result<usize, ToolError> {
    let value = asked.unwrap_or(usual);
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let message = format!("{value} does not lie between {least} and {most}");
    Err(ToolError::invalid(field, message))
}

impl From<SqlError> for ToolError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Refused(Refusal { reason, hint }) => Self::Refused { reason, hint },
            SqlError::TooMuchMemory => Self::Refused {
                reason: error.to_string(),
                hint: "join on keys, group before joining, or ask about a shorter time".to_owned(),
            },
            SqlError::Wrong { message } => Self::invalid("sql", message),
            SqlError::Crowded { most } => Self::Crowded {
                most: u32::try_from(most).unwrap_or(u32::MAX),
            },
            SqlError::Timeout { deadline } => Self::Timeout { deadline },
            SqlError::Store(error) => Self::Store(error),
        }
    }
}

#[cfg(test)]
mod tests;
