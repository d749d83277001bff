//! Reads the rows of a lake in the place of own rows, or together with them.
//!
//! An attached `DuckLake` has the rows of several databases. Views with the names of the private
//! tables read them there, so that all queries and the published views stay as they are. Series and
//! origins are few and needed by every query: they are copied.
//!
//! An instance without a database of its own shows one snapshot of the lake until a thread has
//! found a newer one. An instance that receives events uses an engine of its own for this, so that
//! neither the lake nor queries over it delay ingest: a slow catalog blocks that engine only, and
//! SQL of users has no access to the database through it. Each query shows the newest snapshot
//! first, and copies the rows that were committed after the border, the last slice of this instance
//! in that snapshot ([`hot`]). Rows up to the border are read in the lake alone, so retention may
//! delete them from the database at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duckdb::Connection;
use echo_core::clock::Clock;
use echo_core::ids::ClusterId;
use echo_core::units::{Hour, Nanos};

use crate::StoreError;
use crate::duckdb::coverage::CoverageCache;
use crate::duckdb::dictionary::Dictionary;
use crate::duckdb::engine::{EngineResult, engine};
use crate::duckdb::hours::HoursCache;
use crate::duckdb::lake_source::{LAKE, LakeSource};
use crate::duckdb::lock::Lock;
use crate::duckdb::migrations::MIGRATIONS;
use crate::duckdb::redaction::Hidden;
use crate::duckdb::rows::identity;
use crate::duckdb::shutdown::Signal;
use crate::duckdb::slices::SliceReader;
use crate::duckdb::writer::Joined;
use crate::duckdb::{DuckDbConfig, DuckDbStore, no_thread};
use crate::hours::UnsettledHour;

use hot::{Copied, HotRows};

mod hot;
mod views;

/// Operation in errors.
const DOING: &str = "reading the state of the lake";

/// Attempts to find lake and database in states that fit: a slice is in the lake some milliseconds
/// before the thread that copied it reports it.
const ATTEMPTS: u32 = 50;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// How a store shows newer snapshots.
#[derive(Debug)]
pub(super) enum LakeRows {
    /// A thread looks for them.
    Followed { _thread: LakeRefresh },
    /// Queries ask for them.
    OnDemand(Box<Mutex<LakeSnapshot>>),
}

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
    /// Rows of this instance, if it has a database.
    hot: Option<HotRows>,
    /// Clusters of each other instance.
    elsewhere: Clusters,
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
    /// Due hours of other instances.
    pub(super) hours: Arc<HoursCache>,
}

/// Changes of a transaction that is not committed yet.
#[derive(Debug)]
struct Changes {
    snapshot: Option<i64>,
    names: (u64, u64),
    elsewhere: Clusters,
    /// Due hours of other instances, if there is a newer snapshot.
    unsettled: Option<Vec<UnsettledHour>>,
    copied: Option<Copied>,
}

impl DuckDbStore {
    /// Opens a store of the rows of a lake, of which `own` is one of the databases: with those of
    /// its rows that are not in the lake yet, each row once, as of the last
    /// [`Self::refresh_lake`].
    pub fn open_beside(
        config: &DuckDbConfig,
        clock: Arc<dyn Clock>,
        own: SliceReader,
    ) -> Result<Self, StoreError> {
        Self::open_with(config, clock, (MIGRATIONS, Some(own)))
    }

    /// Shows all rows that are committed now in a store of [`Self::open_beside`]. Returns the
    /// clusters of the other databases. Blocks while the catalog does not answer.
    pub fn refresh_lake(&self) -> Result<BTreeSet<ClusterId>, StoreError> {
        self.lake
            .as_ref()
            .map_or_else(|| Ok(BTreeSet::new()), LakeRows::refresh)
    }

    /// Received time up to which events may have been deleted.
    pub fn deleted_until(&self) -> Nanos {
        Nanos::new(self.progress.deleted_until.load(Ordering::Acquire))
    }
}

impl LakeRows {
    /// Shows the newest snapshot and all that is committed. Returns the clusters of other
    /// instances. Blocks while the catalog does not answer.
    pub(super) fn refresh(&self) -> Result<BTreeSet<ClusterId>, StoreError> {
        let Self::OnDemand(shown) = self else {
            return Ok(BTreeSet::new());
        };
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.refresh()?;
        if shown.snapshot.is_none() {
            return Err(StoreError::Engine {
                doing: DOING,
                reason: "nothing was copied to it yet".to_owned(),
            });
        }
        let clusters = shown.elsewhere.values().flat_map(|of| of.iter().cloned());
        let clusters = clusters.collect();
        drop(shown);
        Ok(clusters)
    }
}

impl LakeSnapshot {
    /// Shows the current snapshot, together with the rows of a database if there is one.
    pub(super) fn load(
        connection: Connection,
        caches: Caches,
        source: &LakeSource,
        own: Option<SliceReader>,
    ) -> Result<Self, StoreError> {
        let columns = views::columns(&connection).map_err(engine("starting"))?;
        let mut shown = Self {
            connection,
            caches,
            hidden: Hidden::new(&source.secrets),
            columns,
            snapshot: None,
            names: (0, 0),
            hot: own.map(HotRows::new).transpose()?,
            elsewhere: Clusters::new(),
        };
        shown.refresh()?;
        Ok(shown)
    }

    /// Looks for newer snapshots until the thread is dropped.
    pub(super) fn follow(
        mut self,
        every: Duration,
        lock: Arc<Lock>,
    ) -> Result<LakeRows, StoreError> {
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
        let thread = LakeRefresh {
            _stop: stop,
            _thread: thread.map_err(no_thread)?,
        };
        Ok(LakeRows::Followed { _thread: thread })
    }

    /// Shows the current snapshot, and what is committed after it.
    fn refresh(&mut self) -> Result<(), StoreError> {
        let pause = Signal::default();
        for _ in 0..ATTEMPTS {
            let outcome = self.try_refresh();
            if !matches!(outcome, Ok(true)) {
                // It fails if the statement has ended the transaction.
                let _ended = self.connection.execute_batch("ROLLBACK");
            }
            if outcome.map_err(|error| self.hidden.in_error(error))? {
                return Ok(());
            }
            if pause.stopped_within(PAUSE) {
                break;
            }
        }
        Err(StoreError::Engine {
            doing: DOING,
            reason: "the lake has not taken what this instance has deleted, or holds other events than its database".to_owned(),
        })
    }

    /// Returns whether a whole state is shown.
    fn try_refresh(&mut self) -> Result<bool, StoreError> {
        // One snapshot for all that follows.
        let begun = self.connection.execute_batch("BEGIN");
        let changes = begun.and_then(|()| self.show());
        let Some(mut changes) = changes.map_err(engine(DOING))? else {
            self.connection
                .execute_batch("ROLLBACK")
                .map_err(engine(DOING))?;
            return Ok(true);
        };
        let is_new = changes.snapshot != self.snapshot;
        let mut has_changed = is_new;
        if let Some(hot) = &self.hot {
            let copied = hot.copy(&self.connection, is_new)?;
            if !hot.is_whole(&copied) {
                return Ok(false);
            }
            if copied.has_names {
                let entries = identity::entries(&self.connection).map_err(engine(DOING))?;
                // Before any row that refers to them is seen.
                self.caches.dictionary.extend(&entries);
            }
            has_changed |= copied.has_changed;
            changes.copied = Some(copied);
        }
        let committed = self.connection.execute_batch("COMMIT");
        committed.map_err(engine(DOING))?;
        if has_changed {
            self.caches.coverage.invalidate_all();
        }
        if let Some(unsettled) = changes.unsettled {
            self.caches.hours.set_elsewhere(unsettled);
        }
        (self.snapshot, self.names) = (changes.snapshot, changes.names);
        self.elsewhere = changes.elsewhere;
        if let Some((hot, copied)) = self.hot.as_mut().zip(changes.copied) {
            hot.record(copied);
        }
        Ok(true)
    }

    /// Replaces the views if there is a newer snapshot. Returns `None` if nothing is to be
    /// committed: nothing is new, or nothing was ever copied to the lake.
    fn show(&self) -> EngineResult<Option<Changes>> {
        let connection = &self.connection;
        let snapshot = format!("SELECT id FROM ducklake_current_snapshot('{LAKE}')");
        let snapshot: i64 = connection.query_row(&snapshot, [], |row| row.get(0))?;
        let mut changes = Changes {
            snapshot: Some(snapshot),
            names: self.names,
            elsewhere: self.elsewhere.clone(),
            unsettled: None,
            copied: None,
        };
        if self.snapshot == Some(snapshot) {
            return Ok(self.hot.is_some().then_some(changes));
        }
        let stored = views::stored_columns(connection)?;
        if !stored.contains_key("slices") {
            return Ok(None);
        }
        let own = self.hot.as_ref().map(|hot| hot.instance.as_str());
        changes.names = views::count_names(connection)?;
        if changes.names != self.names {
            views::copy_names(connection)?;
            // Before any row that refers to them is seen.
            self.caches
                .dictionary
                .extend(&identity::entries(connection)?);
            changes.elsewhere = clusters(views::clusters_elsewhere(connection, own)?);
        }
        let due = views::due_elsewhere(connection, own)?;
        changes.unsettled = Some(unsettled(due, &changes.elsewhere));
        if self.snapshot.is_none() {
            if own.is_some() {
                hot::create_tables(connection, self.columns.keys().copied())?;
            }
            views::drop_tables(connection)?;
        }
        let shown = views::Shown {
            snapshot,
            instances: views::instances(connection, own)?,
            has_hot: own.is_some(),
        };
        let none = BTreeSet::new();
        for (table, columns) in &self.columns {
            let stored = stored.get(*table).unwrap_or(&none);
            let view = views::definition((*table, columns), stored, &shown);
            connection.execute_batch(&view)?;
        }
        Ok(Some(changes))
    }
}

/// Groups clusters by their instance.
fn clusters(pairs: Vec<(String, String)>) -> Clusters {
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
fn unsettled(due: Vec<views::DueElsewhere>, clusters: &Clusters) -> Vec<UnsettledHour> {
    let hours = due.into_iter().map(|due| UnsettledHour {
        hour: Hour::containing(Nanos::new(due.hour_ns)),
        was_closed: due.was_closed,
        clusters: Some(clusters.get(&due.instance).cloned().unwrap_or_default()),
    });
    hours.collect()
}
