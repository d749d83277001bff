//! SQL of users and models: each statement runs in a process of its own, which can be killed, and which reads the
//! database file and its log beside the store.
//!
//! Invariants: the store does not change the file while a statement reads it ([`file_turns`]), and a statement
//! that read two states of it has no table ([`worker`]).

mod confinement;
pub(super) mod docs;
pub(super) mod file_turns;
mod kind;
mod message;
mod problem;
mod process;
mod rows;
mod statement;
#[cfg(test)]
mod tests;
pub mod worker;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::StoreError;
use crate::duckdb::redaction::Hidden;
use crate::duckdb::sql::file_turns::{Admission, FileTurns};
use crate::duckdb::sql::message::Request;
use crate::duckdb::sql::problem::RedactedPaths;
use crate::sql::{SqlError, SqlQuery, SqlTable};
use crate::timings::Stopwatch;

/// Run time up to which a statement is a short one.
const SHORT: Duration = Duration::from_secs(1);

/// Maximum number of concurrent statements, and of long ones among them: these leave places for short ones.
const MAX_STATEMENTS: usize = 6;
const MAX_LONG: usize = 4;

/// Longest wait for a place. Those that long statements leave are free again after [`SHORT`].
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Denominator of the share of the engine's memory that the process of a statement may use in addition, and the least
/// that it may use, bytes.
const MEMORY_FRACTION: u64 = 16;
const MIN_MEMORY_BYTES: u64 = 128 << 20;

/// Runs a limited number of statements at a time.
#[derive(Debug)]
pub(super) struct SqlPool {
    program: PathBuf,
    database: PathBuf,
    attach: Option<String>,
    memory_bytes: u64,
    places: Semaphore,
    long: Semaphore,
    turns: Arc<FileTurns>,
    hidden: RedactedPaths,
    secrets: Hidden,
}

impl SqlPool {
    /// Statements on `database`, run by `program`; `memory` is the memory limit of the store's engine, bytes.
    pub(super) fn new(
        program: &Path,
        database: &Path,
        memory: u64,
        turns: &Arc<FileTurns>,
    ) -> Self {
        Self {
            program: program.to_owned(),
            database: database.to_owned(),
            attach: None,
            memory_bytes: MIN_MEMORY_BYTES.max(memory / MEMORY_FRACTION),
            places: Semaphore::new(MAX_STATEMENTS),
            long: Semaphore::new(MAX_LONG),
            turns: Arc::clone(turns),
            hidden: RedactedPaths::new(database),
            secrets: Hidden::default(),
        }
    }

    /// Reads the rows of a lake, attached by these statements, and hides credentials in errors.
    pub(super) fn with_lake(self, attach: &str, hidden: &Hidden) -> Self {
        // Attaching it may take longer than a short statement.
        let long = Semaphore::new(MAX_STATEMENTS);
        Self {
            attach: Some(attach.to_owned()),
            secrets: hidden.clone(),
            long,
            ..self
        }
    }

    /// Runs a query. Dropping the future stops the statement.
    pub(super) async fn run_query(&self, query: SqlQuery) -> Result<SqlTable, SqlError> {
        echo_sql_guard::text::check(&query.text)?;
        let deadline = query.deadline;
        let begun = Stopwatch::start();
        let answered = timeout(deadline, self.answer(query)).await;
        let answered = answered.unwrap_or(Err(SqlError::Timeout { deadline }));
        let answered = answered.map(|table| SqlTable {
            elapsed: begun.elapsed(),
            ..table
        });
        answered.map_err(|error| self.hidden.redact(error, &self.secrets))
    }

    /// Runs a query when there is a place, and once more if a checkpoint stops it: the next one is not due for a
    /// while.
    async fn answer(&self, query: SqlQuery) -> Result<SqlTable, SqlError> {
        let place = timeout(MAX_WAIT, self.places.acquire()).await;
        let place = place.map_err(|_elapsed| SqlError::Overloaded {
            most: MAX_STATEMENTS,
        })?;
        let _place = place.map_err(|_closed| StoreError::Closed)?;
        match self.answer_in_turn(query.clone()).await {
            Err(SqlError::Overtaken) => self.answer_in_turn(query).await,
            answered => answered,
        }
    }

    /// Runs a query that has a place, unless a checkpoint stops it.
    async fn answer_in_turn(&self, query: SqlQuery) -> Result<SqlTable, SqlError> {
        let mut turn = self.turns.statement().await.ok_or(StoreError::Closed)?;
        let answered = tokio::select! {
            answered = self.answer_in_process(query) => answered,
            admission = turn.has_to_end() => Err(match admission {
                Admission::Closed => StoreError::Closed.into(),
                Admission::Open | Admission::Held | Admission::Overdue => SqlError::Overtaken,
            }),
        };
        drop(turn);
        answered
    }

    /// Runs a query that has its turn. If it takes longer, it needs the place of a long statement as well.
    async fn answer_in_process(&self, query: SqlQuery) -> Result<SqlTable, SqlError> {
        let request = Request {
            database: self.database.clone(),
            attach: self.attach.clone(),
            memory_bytes: self.memory_bytes,
            query,
        };
        let mut answer = pin!(process::answer(&self.program, &request));
        if let Ok(answered) = timeout(SHORT, &mut answer).await {
            return answered;
        }
        let long = self.long.try_acquire();
        let _long = long.map_err(|_taken| SqlError::Overloaded { most: MAX_LONG })?;
        answer.await
    }

    /// Turns at the database file.
    pub(super) const fn turns(&self) -> &Arc<FileTurns> {
        &self.turns
    }

    /// Stops running statements and refuses further ones.
    pub(super) fn close(&self) {
        self.places.close();
        self.turns.close();
    }
}
