//! A statement in its process: checked by the guard, run in a read-only transaction, its rows as JSON.

use duckdb::Connection;
use echo_sql_guard::refusal::Refusal;
use echo_sql_guard::{PARSE, ReadOnlySql};
use serde_json::Value;

use crate::duckdb::batches;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::sql::kind;
use crate::duckdb::sql::problem::{self, Problem};
use crate::duckdb::sql::rows::Rows;
use crate::sql::{SqlQuery, SqlTable};

/// Runs a statement. A text that the guard has not accepted is parsed, never prepared or run, because preparing
/// a text runs all of its statements but the last.
pub(super) fn answer(connection: &Connection, query: &SqlQuery) -> Result<SqlTable, Problem> {
    let sql = shortest(connection, query)?;
    connection
        .execute_batch("BEGIN TRANSACTION READ ONLY")
        .and_then(|()| rows(connection, &sql, query))
        .map_err(problem::from_engine)
}

/// The statement, with a limit if it sorts more rows than requested.
fn shortest(connection: &Connection, query: &SqlQuery) -> Result<ReadOnlySql, Problem> {
    let whole = vetted(connection, &query.text)?;
    let shorter = whole.shortened(query.max_rows.saturating_add(1));
    Ok(match shorter.map(|text| vetted(connection, &text)) {
        Some(Ok(shorter)) => shorter,
        // If it cannot be shortened, all rows are sorted.
        Some(Err(_)) | None => whole,
    })
}

/// Checks the text with the guard.
fn vetted(connection: &Connection, text: &str) -> Result<ReadOnlySql, Problem> {
    echo_sql_guard::text::check(text)?;
    let tree: String = connection
        .query_row(PARSE, [text], |row| row.get(0))
        .map_err(problem::from_engine)?;
    let tree: Value = serde_json::from_str(&tree).map_err(|_too_deep| {
        let reason = "the statement is nested too deeply";
        Refusal::new(reason, "name parts of it in WITH")
    })?;
    if let Some((message, position)) = echo_sql_guard::syntax_error(&tree) {
        return Err(Problem::Wrong {
            message: problem::with_position(&message, text, position),
        });
    }
    Ok(echo_sql_guard::check(text, &tree)?)
}

fn rows(connection: &Connection, sql: &ReadOnlySql, query: &SqlQuery) -> EngineResult<SqlTable> {
    let mut statement = connection.prepare(sql.text())?;
    let mut rows = Rows::new(query.max_rows, query.max_bytes);
    for batch in batches::stream(&mut statement, [])? {
        if rows.add(&batch?) {
            break;
        }
    }
    let names = statement.column_names();
    let kinds = (0..names.len()).map(|column| kind::name(&statement.column_logical_type(column)));
    let columns = kind::columns(names, kinds);
    Ok(rows.table(columns))
}
