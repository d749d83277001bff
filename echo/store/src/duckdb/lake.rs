//! Reads the rows of a lake in the place of own rows.
//!
//! An attached `DuckLake` has the rows of several databases. Views with the names of the private
//! tables read them there, so that all queries and the published views stay as they are. They show
//! one snapshot of the lake until a thread has found a newer one. Series and origins are few and
//! needed by every query: they are copied.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duckdb::Connection;

use crate::StoreError;
use crate::duckdb::coverage::CoverageCache;
use crate::duckdb::dictionary::Dictionary;
use crate::duckdb::engine::{EngineResult, engine};
use crate::duckdb::lake_source::{LAKE, LakeSource};
use crate::duckdb::lock::Lock;
use crate::duckdb::no_thread;
use crate::duckdb::redaction::Hidden;
use crate::duckdb::rows::identity;
use crate::duckdb::shutdown::Signal;
use crate::duckdb::writer::Joined;

mod views;

/// Thread that looks for newer snapshots, stopped on drop.
#[derive(Debug)]
pub(super) struct LakeRefresh {
    // Fields are dropped in this order: the thread is signalled to stop, then joined.
    _stop: Stop,
    _thread: Joined,
}

#[derive(Debug)]
struct Stop(Arc<Signal>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The snapshot that queries see.
#[derive(Debug)]
pub(super) struct LakeSnapshot {
    connection: Connection,
    dictionary: Arc<Dictionary>,
    coverage: Arc<CoverageCache>,
    hidden: Hidden,
    columns: views::Columns,
    snapshot: Option<i64>,
    names: (u64, u64),
}

impl LakeSnapshot {
    /// Shows the current snapshot.
    pub(super) fn load(
        connection: Connection,
        dictionary: &Arc<Dictionary>,
        coverage: &Arc<CoverageCache>,
        source: &LakeSource,
    ) -> Result<Self, StoreError> {
        let columns = views::columns(&connection).map_err(engine("starting"))?;
        let mut shown = Self {
            connection,
            dictionary: Arc::clone(dictionary),
            coverage: Arc::clone(coverage),
            hidden: Hidden::new(&source.secrets),
            columns,
            snapshot: None,
            names: (0, 0),
        };
        shown.refresh()?;
        Ok(shown)
    }

    /// Looks for newer snapshots until the thread is dropped.
    pub(super) fn follow(
        mut self,
        every: Duration,
        lock: Arc<Lock>,
    ) -> Result<LakeRefresh, StoreError> {
        let signal = Arc::new(Signal::default());
        let stop = Stop(Arc::clone(&signal));
        let thread = Joined::start("lake-refresh", move || {
            while !signal.stopped_within(every) {
                if let Err(error) = self.refresh() {
                    tracing::warn!(%error, "cannot look for newer rows in the lake");
                }
            }
            drop(self);
            drop(lock);
        });
        Ok(LakeRefresh {
            _stop: stop,
            _thread: thread.map_err(no_thread)?,
        })
    }

    /// Shows the current snapshot.
    fn refresh(&mut self) -> Result<(), StoreError> {
        let doing = "reading the state of the lake";
        let outcome = self.try_refresh();
        if outcome.is_err() {
            // It fails if the statement has ended the transaction.
            let _ended = self.connection.execute_batch("ROLLBACK");
        }
        outcome.map_err(|error| self.hidden.in_error(engine(doing)(error)))
    }

    fn try_refresh(&mut self) -> EngineResult<()> {
        let connection = &self.connection;
        // One snapshot for all that follows.
        connection.execute_batch("BEGIN")?;
        let snapshot = format!("SELECT id FROM ducklake_current_snapshot('{LAKE}')");
        let snapshot: i64 = connection.query_row(&snapshot, [], |row| row.get(0))?;
        let stored = views::stored_columns(connection)?;
        if self.snapshot == Some(snapshot) || !stored.contains_key("slices") {
            return connection.execute_batch("ROLLBACK");
        }
        let instances = views::instances(connection)?;
        let names = views::count_names(connection)?;
        if names != self.names {
            views::copy_names(connection)?;
            // Before any row that refers to them is seen.
            self.dictionary.extend(&identity::entries(connection)?);
        }
        if self.snapshot.is_none() {
            views::drop_tables(connection)?;
        }
        let none = BTreeSet::new();
        for (table, columns) in &self.columns {
            let stored = stored.get(*table).unwrap_or(&none);
            let view = views::definition((*table, columns), stored, &instances, snapshot);
            connection.execute_batch(&view)?;
        }
        connection.execute_batch("COMMIT")?;
        self.coverage.invalidate_all();
        (self.snapshot, self.names) = (Some(snapshot), names);
        Ok(())
    }
}
