//! SQL of users and models, on separate connections.
//!
//! Invariants: a text that the guard has not accepted is parsed, never prepared or run, because
//! preparing a text runs all of its statements but the last. An accepted statement runs in a
//! read-only transaction and is interrupted repeatedly when its deadline has passed, its caller is
//! gone, or it takes memory that others need.

mod answer;
pub(super) mod docs;
mod kind;
mod memory;
mod problem;
#[cfg(test)]
mod tests;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duckdb::Connection;
use echo_sql_guard::limits::MAX_TREE_BYTES;
use echo_sql_guard::refusal::Refusal;
use echo_sql_guard::{PARSE, ReadOnlySql};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::StoreError;
use crate::duckdb::batches;
use crate::duckdb::connection_pool::{ConnectionPool, Reader};
use crate::duckdb::engine::EngineResult;
use crate::duckdb::fatal::Fatal;
use crate::duckdb::lock::Lock;
use crate::duckdb::read_gate::ReadGate;
use crate::duckdb::redaction::Hidden;
use crate::duckdb::sql::answer::Rows;
use crate::duckdb::sql::memory::Memory;
use crate::duckdb::sql::problem::RedactedPaths;
use crate::duckdb::sql::watch::{AbandonOnDrop, Rules, RunSlot, STUCK_AFTER, Stop, Stuck, Watch};
use crate::sql::{SqlError, SqlQuery, SqlTable};
use crate::timings::Stopwatch;

/// Maximum number of concurrent statements.
const MAX_RUNNING: u32 = 2;

/// Additional connections, for statements that replace those which do not stop.
const SPARE_CONNECTIONS: u32 = 2;

/// Longest wait for a run slot.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Denominator of the share of the engine's memory that one statement may use.
const MEMORY_FRACTION: u64 = 8;

/// Memory limit of a statement that collects values, bytes: the collected values that it returns
/// are allocated in one piece in addition.
const COLLECTING_BYTES: u64 = 64 << 20;

/// Longest wait for running statements when the store is closed. A statement that has not stopped
/// by then may never stop.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections for SQL, and their shared memory limit.
#[derive(Debug)]
pub(super) struct SqlConnections {
    statements: Vec<Connection>,
    probe: Connection,
    budget_bytes: u64,
}

impl SqlConnections {
    /// Clones of a connection; `memory` is the memory limit of the engine, bytes.
    pub(super) fn beside(connection: &Connection, memory: u64) -> EngineResult<Self> {
        let clone = |_| connection.try_clone();
        Ok(Self {
            statements: (0..MAX_RUNNING + SPARE_CONNECTIONS)
                .map(clone)
                .collect::<EngineResult<_>>()?,
            probe: connection.try_clone()?,
            budget_bytes: memory / MEMORY_FRACTION,
        })
    }
}

/// Runs a limited number of accepted statements at a time.
#[derive(Debug)]
pub(super) struct SqlPool {
    readers: ConnectionPool,
    slots: Arc<Semaphore>,
    memory: Memory,
    stuck: Stuck,
    hidden: Arc<RedactedPaths>,
    secrets: Hidden,
}

impl SqlPool {
    /// Pool of these connections to the database at `path`.
    pub(super) fn new(
        connections: SqlConnections,
        path: &Path,
        lock: &Arc<Lock>,
        gate: &Arc<ReadGate>,
        fatal: &Fatal,
    ) -> Self {
        let SqlConnections {
            statements,
            probe,
            budget_bytes,
        } = connections;
        Self {
            readers: ConnectionPool::from_connections(statements, lock, gate, fatal),
            slots: Arc::new(Semaphore::new(MAX_RUNNING as usize)),
            memory: Memory::new(probe, budget_bytes),
            stuck: Stuck::default(),
            hidden: Arc::new(RedactedPaths::new(path)),
            secrets: Hidden::default(),
        }
    }

    /// Hides credentials in errors.
    pub(super) fn hiding(self, hidden: &Hidden) -> Self {
        Self {
            readers: self.readers.hiding(hidden),
            secrets: hidden.clone(),
            ..self
        }
    }

    /// Runs a query. Dropping the future stops the statement.
    pub(super) async fn run_query(&self, query: SqlQuery) -> Result<SqlTable, SqlError> {
        echo_sql_guard::text::check(&query.text)?;
        let permit = Arc::clone(&self.slots).acquire_owned();
        let permit = match timeout(MAX_WAIT, permit).await {
            Ok(permit) => permit.map_err(|_closed| StoreError::Closed)?,
            Err(_elapsed) => {
                return Err(SqlError::Overloaded {
                    most: MAX_RUNNING as usize,
                });
            }
        };
        let watch = Arc::new(Watch::default());
        let abandon = AbandonOnDrop::new(&watch);
        let rules = Rules {
            deadline: query.deadline,
            stuck_after: STUCK_AFTER,
            stuck: self.stuck.clone(),
            // The slot is occupied until the statement has ended, even if the caller is gone.
            slot: RunSlot::new(permit),
            memory: Some(self.memory.clone()),
        };
        let (hidden, secrets) = (Arc::clone(&self.hidden), self.secrets.clone());
        let read = move |reader: &Reader| {
            let answered = answer(reader, &query, &watch, rules);
            Ok(answered.map_err(|error| hidden.redact(error, &secrets)))
        };
        let answered = self.readers.run("running SQL", read).await;
        drop(abandon);
        answered?
    }

    /// Number of statements that were interrupted and have not stopped.
    pub(super) fn n_stuck(&self) -> u64 {
        self.stuck.count()
    }

    /// Refuses further statements.
    pub(super) fn refuse(&self) {
        self.slots.close();
    }

    /// Waits for running statements up to a time limit, and refuses further ones.
    pub(super) async fn close(&self) {
        self.refuse();
        if timeout(CLOSE_TIMEOUT, self.readers.close()).await.is_err() {
            tracing::warn!(
                after_s = CLOSE_TIMEOUT.as_secs(),
                "a statement does not stop and is abandoned"
            );
        }
    }
}

fn answer(
    reader: &Reader,
    query: &SqlQuery,
    watch: &Watch,
    mut rules: Rules,
) -> Result<SqlTable, SqlError> {
    let begun = Stopwatch::start();
    let sql = shortest(&reader.connection, query)?;
    if sql.collects() {
        rules.memory = rules
            .memory
            .map(|memory| memory.limited_to(COLLECTING_BYTES));
    }
    let interrupt = reader.connection.interrupt_handle();
    let (outcome, stop) = watch.during(&rules, &|| interrupt.interrupt(), || {
        run(&reader.connection, &sql, query).map(|table| SqlTable {
            elapsed: begun.elapsed(),
            ..table
        })
    });
    // The next statement always starts a new transaction, and no old snapshot is kept. The engine
    // may have ended the transaction itself; the watch has ended, so a late interrupt does not hit
    // this.
    let _ended = reader.connection.execute_batch("ROLLBACK");
    outcome.map_err(|error| match (error, stop) {
        (SqlError::Store(_) | SqlError::TooMuchMemory, Some(Stop::Memory)) => {
            SqlError::TooMuchMemory
        }
        (SqlError::Store(_), Some(Stop::Deadline | Stop::Abandoned)) => SqlError::Timeout {
            deadline: query.deadline,
        },
        (error, _) => error,
    })
}

fn run(connection: &Connection, sql: &ReadOnlySql, query: &SqlQuery) -> Result<SqlTable, SqlError> {
    begin(connection).map_err(problem::from_engine)?;
    rows(connection, sql, query).map_err(problem::from_engine)
}

/// The statement, with a limit if it sorts more rows than requested.
fn shortest(connection: &Connection, query: &SqlQuery) -> Result<ReadOnlySql, SqlError> {
    let whole = vetted(connection, &query.text)?;
    let shorter = whole.shortened(query.max_rows.saturating_add(1));
    Ok(match shorter.map(|text| vetted(connection, &text)) {
        Some(Ok(shorter)) => shorter,
        // If it cannot be shortened, all rows are sorted.
        Some(Err(_)) | None => whole,
    })
}

/// Checks the text with the guard.
fn vetted(connection: &Connection, text: &str) -> Result<ReadOnlySql, SqlError> {
    echo_sql_guard::text::check(text)?;
    let tree: String = connection
        .query_row(PARSE, [text], |row| row.get(0))
        .map_err(problem::from_engine)?;
    if tree.len() > MAX_TREE_BYTES {
        let reason = "the statement has too many parts";
        return Err(Refusal::new(reason, "split the statement").into());
    }
    let tree: Value = serde_json::from_str(&tree).map_err(|_too_deep| {
        let reason = "the statement is nested too deeply";
        Refusal::new(reason, "name parts of it in WITH")
    })?;
    if let Some((message, position)) = echo_sql_guard::syntax_error(&tree) {
        return Err(SqlError::Wrong {
            message: problem::with_position(&message, text, position),
        });
    }
    Ok(echo_sql_guard::check(text, &tree)?)
}

fn begin(connection: &Connection) -> EngineResult<()> {
    const BEGIN: &str = "BEGIN TRANSACTION READ ONLY";
    connection.execute_batch(BEGIN).or_else(|_left_open| {
        connection.execute_batch("ROLLBACK")?;
        connection.execute_batch(BEGIN)
    })
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
