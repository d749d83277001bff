//! Reads the rows of a lake in the place of own rows.
//!
//! An attached `DuckLake` has the rows of several databases. Views with the names of the private
//! tables read them there, so that all queries and the published views stay as they are. Series and
//! origins are few and needed by every query: they are copied.
//!
//! An instance with `--read-only` shows one snapshot of the lake until a thread has found a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duckdb::Connection;
use echo_core::ids::ClusterId;
use echo_core::units::{Hour, Nanos};

use crate::StoreError;
use crate::duckdb::coverage::CoverageCache;
use crate::duckdb::dictionary::Dictionary;
use crate::duckdb::engine::{EngineResult, engine};
use crate::duckdb::hours::HoursCache;
use crate::duckdb::lake_source::{LAKE, LakeSource};
use crate::duckdb::lock::Lock;
use crate::duckdb::redaction::Hidden;
use crate::duckdb::rows::{identity, schema};
use crate::duckdb::shutdown::Signal;
use crate::duckdb::sql::file_turns::{FileTurns, Urgency};
use crate::duckdb::writer::{Joined, no_thread};
use crate::hours::UnsettledHour;

mod views;

/// Operation in errors.
const DOING: &str = "reading the state of the lake";

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
    caches: Caches,
    hidden: Hidden,
    columns: views::Columns,
    snapshot: Option<i64>,
    names: (u64, u64),
    /// Clusters of each instance.
    clusters: Clusters,
    /// Turns at the file, for checkpoints.
    turns: Arc<FileTurns>,
    is_checkpointed: bool,
}

/// Clusters by instance.
type Clusters = BTreeMap<String, Arc<BTreeSet<ClusterId>>>;

/// What a snapshot changes in memory.
#[derive(Debug, Clone)]
pub(super) struct Caches {
    /// Series and senders.
    pub(super) dictionary: Arc<Dictionary>,
    /// When senders reported.
    pub(super) coverage: Arc<CoverageCache>,
    /// Due hours of the instances.
    pub(super) hours: Arc<HoursCache>,
}

/// Changes of a transaction that is not committed yet.
#[derive(Debug)]
struct Changes {
    snapshot: i64,
    names: (u64, u64),
    clusters: Clusters,
    /// Due hours of the instances.
    unsettled: Vec<UnsettledHour>,
}

impl LakeSnapshot {
    /// Shows the current snapshot.
    pub(super) fn load(
        connection: Connection,
        caches: Caches,
        source: &LakeSource,
        turns: &Arc<FileTurns>,
    ) -> Result<Self, StoreError> {
        let columns = views::columns(&connection).map_err(engine("starting"))?;
        let mut shown = Self {
            connection,
            caches,
            hidden: Hidden::new(&source.secrets),
            columns,
            snapshot: None,
            names: (0, 0),
            clusters: Clusters::new(),
            turns: Arc::clone(turns),
            is_checkpointed: true,
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
        let refreshed = self.try_refresh();
        if !matches!(refreshed, Ok(true)) {
            // It fails if the statement has ended the transaction.
            let _ended = self.connection.execute_batch("ROLLBACK");
        }
        refreshed
            .and_then(|_is_new| self.checkpoint())
            .map_err(|error| {
                let error = engine(DOING)(error);
                self.hidden.in_error(error)
            })
    }

    /// Checkpoints new views, if no statement reads the file now: each statement reads the log.
    fn checkpoint(&mut self) -> EngineResult<()> {
        if !self.is_checkpointed
            && let Some(_turn) = self.turns.checkpoint(Urgency::Usual)
        {
            self.connection.execute_batch(schema::CHECKPOINT)?;
            self.is_checkpointed = true;
        }
        Ok(())
    }

    /// Returns whether a newer snapshot is shown.
    fn try_refresh(&mut self) -> EngineResult<bool> {
        // One snapshot for all that follows.
        self.connection.execute_batch("BEGIN")?;
        let Some(changes) = self.show()? else {
            return Ok(false);
        };
        self.connection.execute_batch("COMMIT")?;
        self.is_checkpointed = false;
        self.caches.coverage.invalidate_all();
        self.caches.hours.set_elsewhere(changes.unsettled);
        (self.snapshot, self.names) = (Some(changes.snapshot), changes.names);
        self.clusters = changes.clusters;
        Ok(true)
    }

    /// Replaces the views if there is a newer snapshot. Returns `None` if nothing is to be
    /// committed: nothing is new, or nothing was ever copied to the lake.
    fn show(&self) -> EngineResult<Option<Changes>> {
        let connection = &self.connection;
        let snapshot = format!("SELECT id FROM ducklake_current_snapshot('{LAKE}')");
        let snapshot: i64 = connection.query_row(&snapshot, [], |row| row.get(0))?;
        if self.snapshot == Some(snapshot) {
            return Ok(None);
        }
        let stored = views::stored_columns(connection)?;
        if !stored.contains_key("slices") {
            return Ok(None);
        }
        let names = views::count_names(connection)?;
        let clusters = if names == self.names {
            self.clusters.clone()
        } else {
            views::copy_names(connection)?;
            // Before any row that refers to them is seen.
            self.caches
                .dictionary
                .extend(&identity::entries(connection)?);
            by_instance(views::clusters(connection)?)
        };
        let unsettled = unsettled(views::due_hours(connection)?, &clusters);
        if self.snapshot.is_none() {
            views::drop_tables(connection)?;
        }
        let instances = views::instances(connection)?;
        let none = BTreeSet::new();
        for (table, columns) in &self.columns {
            let stored = stored.get(*table).unwrap_or(&none);
            let view = views::definition((*table, columns), stored, snapshot, &instances);
            connection.execute_batch(&view)?;
        }
        Ok(Some(Changes {
            snapshot,
            names,
            clusters,
            unsettled,
        }))
    }
}

/// Groups clusters by their instance.
fn by_instance(pairs: Vec<(String, String)>) -> Clusters {
    let mut clusters: BTreeMap<String, BTreeSet<ClusterId>> = BTreeMap::new();
    for (instance, cluster) in pairs {
        let of_instance = clusters.entry(instance).or_default();
        of_instance.extend(cluster.parse::<ClusterId>());
    }
    let shared = clusters.into_iter();
    shared
        .map(|(instance, of)| (instance, Arc::new(of)))
        .collect()
}

/// Returns the due hours of instances, with the clusters of these.
fn unsettled(due: Vec<views::DueHour>, clusters: &Clusters) -> Vec<UnsettledHour> {
    let hours = due.into_iter().map(|due| UnsettledHour {
        hour: Hour::containing(Nanos::new(due.hour_ns)),
        was_closed: due.was_closed,
        clusters: Some(clusters.get(&due.instance).cloned().unwrap_or_default()),
    });
    hours.collect()
}
