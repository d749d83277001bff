//! Reads committed rows in the order of their numbers, for copies elsewhere.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::record_batch::RecordBatch;
use duckdb::{Connection, OptionalExt, params};
use echo_core::units::Nanos;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;

use crate::StoreError;
use crate::duckdb::batches;
use crate::duckdb::engine::{EngineResult, engine};
use crate::duckdb::lock::Lock;
use crate::duckdb::read_gate::ReadGate;
use crate::duckdb::retention::Progress;

/// Table of which rows are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// Events, by event number.
    Events,
    /// Samples, by the number of their event.
    Samples,
    /// Series that events refer to, by event number.
    Series,
    /// Senders that events refer to, by event number.
    Origins,
    /// States of incidents, by revision.
    Verdicts,
    /// Lost time, by revision.
    Lost,
    /// Closed hours, by the beginning of the hour in Unix nanoseconds.
    Hours,
}

impl Table {
    /// All tables, in the order in which a slice is read.
    pub const ALL: [Self; 7] = [
        Self::Events,
        Self::Samples,
        Self::Series,
        Self::Origins,
        Self::Verdicts,
        Self::Lost,
        Self::Hours,
    ];

    /// Name of the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Events => "event_rows",
            Self::Samples => "sample_rows",
            Self::Series => "series",
            Self::Origins => "origins",
            Self::Verdicts => "verdict_rows",
            Self::Lost => "lost_rows",
            Self::Hours => "cost_hour_rows",
        }
    }

    /// Selects the rows with a number from the first to the second parameter. Events and samples
    /// have the cluster and the day of the event (UTC) in addition.
    const fn select(self) -> &'static str {
        match self {
            Self::Events => {
                "SELECT make_timestamp_ns(rows.timestamp_ns)::DATE AS day, origins.cluster, rows.*
                 FROM event_rows AS rows JOIN origins ON origins.id = rows.origin
                 WHERE rows.event_id BETWEEN ? AND ?"
            }
            Self::Samples => {
                "SELECT make_timestamp_ns(events.timestamp_ns)::DATE AS day, origins.cluster, rows.*
                 FROM sample_rows AS rows JOIN event_rows AS events USING (event_id)
                 JOIN origins ON origins.id = events.origin
                 WHERE rows.event_id BETWEEN ?1 AND ?2 AND events.event_id BETWEEN ?1 AND ?2"
            }
            Self::Series => {
                "SELECT * FROM series
                 WHERE id IN (SELECT series FROM event_rows WHERE event_id BETWEEN ? AND ?)"
            }
            Self::Origins => {
                "SELECT * FROM origins
                 WHERE id IN (SELECT origin FROM event_rows WHERE event_id BETWEEN ? AND ?)"
            }
            Self::Verdicts => "SELECT * FROM verdict_rows WHERE revision BETWEEN ? AND ?",
            Self::Lost => "SELECT * FROM lost_rows WHERE revision BETWEEN ? AND ?",
            Self::Hours => "SELECT * FROM cost_hour_rows WHERE hour_ns BETWEEN ? AND ?",
        }
    }
}

/// Range of event numbers or revisions, ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// First number.
    pub first: u64,
    /// Last number.
    pub last: u64,
}

/// Column of a selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: String,
    /// Type, as the engine writes it.
    pub kind: String,
}

/// Latest revision of a closed hour of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedHour {
    /// Beginning of the hour.
    pub hour: Nanos,
    /// Cluster.
    pub cluster: String,
    /// Highest revision.
    pub revision: u64,
}

/// Beginnings of the hours that are due to be closed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct DueHours {
    /// Hours that were never closed.
    pub open: Vec<Nanos>,
    /// Hours that were closed and have changed since.
    pub changed: Vec<Nanos>,
}

impl FromIterator<(Nanos, bool)> for DueHours {
    /// Collects beginnings of hours, each with whether it was closed before.
    fn from_iter<I: IntoIterator<Item = (Nanos, bool)>>(iter: I) -> Self {
        let (changed, open): (Vec<_>, Vec<_>) =
            iter.into_iter().partition(|(_, was_closed)| *was_closed);
        let begins = |hours: Vec<(Nanos, bool)>| hours.into_iter().map(|(hour, _)| hour).collect();
        Self {
            open: begins(open),
            changed: begins(changed),
        }
    }
}

/// Error of copying: of the store, or of the destination.
#[derive(Debug)]
pub enum CopyError<E> {
    /// The rows could not be read.
    Read(StoreError),
    /// The destination refused them.
    Write(E),
}

impl<E> From<StoreError> for CopyError<E> {
    fn from(error: StoreError) -> Self {
        Self::Read(error)
    }
}

/// Reader of committed rows, on a connection of its own. Keeps the lock of the database while it
/// lives.
pub struct SliceReader {
    connection: Connection,
    gate: Arc<ReadGate>,
    committed: watch::Receiver<u64>,
    progress: Progress,
    _lock: Arc<Lock>,
}

impl fmt::Debug for SliceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceReader").finish_non_exhaustive()
    }
}

impl SliceReader {
    /// Reader beside a connection; `None` if nothing waits for copies.
    pub(super) fn new(
        connection: &Connection,
        lock: &Arc<Lock>,
        gate: &Arc<ReadGate>,
        committed: watch::Receiver<u64>,
        progress: &Progress,
    ) -> EngineResult<Option<Self>> {
        if !progress.waits_for_copies() {
            return Ok(None);
        }
        Ok(Some(Self {
            connection: connection.try_clone()?,
            gate: Arc::clone(gate),
            committed,
            progress: progress.clone(),
            _lock: Arc::clone(lock),
        }))
    }

    /// Identity of the database, a UUID. Copies of the file share it.
    pub fn database_id(&self) -> Result<String, StoreError> {
        self.query("reading the identity of the database", |connection| {
            let id = "SELECT id::VARCHAR FROM database_identity";
            connection.query_row(id, [], |row| row.get(0))
        })
    }

    /// Number of the last committed event; changes wake the receiver.
    pub fn committed(&self) -> watch::Receiver<u64> {
        self.committed.clone()
    }

    /// Number of the first event that is stored.
    pub fn first_event(&self) -> Result<Option<u64>, StoreError> {
        self.query("reading the first event", |connection| {
            connection.query_row("SELECT min(event_id) FROM event_rows", [], |row| row.get(0))
        })
    }

    /// Received time of an event; `None` if it is not stored.
    pub fn received(&self, event: u64) -> Result<Option<Nanos>, StoreError> {
        self.query("reading an event", |connection| {
            let time = "SELECT received_ns FROM event_rows WHERE event_id = ?";
            let time = connection.query_row(time, params![event], |row| row.get(0));
            Ok(time.optional()?.map(Nanos::new))
        })
    }

    /// Received time of the oldest event with a number above `after`.
    pub fn oldest_received(&self, after: u64) -> Result<Option<Nanos>, StoreError> {
        self.query("reading the oldest event", |connection| {
            let time = "SELECT min(received_ns) FROM event_rows WHERE event_id > ?";
            let time: Option<i64> = connection.query_row(time, params![after], |row| row.get(0))?;
            Ok(time.map(Nanos::new))
        })
    }

    /// Highest revision of incidents and lost time; 0 if there is none.
    pub fn last_revision(&self) -> Result<u64, StoreError> {
        let last = "SELECT greatest(
            (SELECT coalesce(max(revision), 0) FROM verdict_rows),
            (SELECT coalesce(max(revision), 0) FROM lost_rows))";
        self.query("reading the last revision", |connection| {
            connection.query_row(last, [], |row| row.get(0))
        })
    }

    /// Columns that [`Self::each_batch`] returns of a table, in order.
    pub fn columns(&self, table: Table) -> Result<Vec<Column>, StoreError> {
        self.query("reading the columns of a table", |connection| {
            let sql = format!(
                "DESCRIBE {}",
                table
                    .select()
                    .replace("?1", "0")
                    .replace("?2", "0")
                    .replace('?', "0")
            );
            let mut statement = connection.prepare(&sql)?;
            let columns = statement.query_map([], |row| {
                Ok(Column {
                    name: row.get(0)?,
                    kind: row.get(1)?,
                })
            })?;
            columns.collect()
        })
    }

    /// Passes the rows of a table with these numbers to `with`, in batches. Stops at its first
    /// error.
    pub fn each_batch<E>(
        &self,
        table: Table,
        numbers: Numbers,
        mut with: impl FnMut(RecordBatch) -> Result<(), E>,
    ) -> Result<(), CopyError<E>> {
        let _reading = self.gate.enter();
        let read = engine("reading rows to copy");
        let mut statement = self.connection.prepare(table.select()).map_err(&read)?;
        let params = params![numbers.first, numbers.last];
        for batch in batches::stream(&mut statement, params).map_err(&read)? {
            with(batch.map_err(&read)?).map_err(CopyError::Write)?;
        }
        Ok(())
    }

    /// Latest revisions of all closed hours.
    pub fn closed_hours(&self) -> Result<Vec<ClosedHour>, StoreError> {
        self.query("reading closed hours", |connection| {
            let mut statement = connection.prepare(
                "SELECT hour_ns, cluster, max(revision) FROM cost_hour_rows
                 GROUP BY hour_ns, cluster ORDER BY hour_ns, cluster",
            )?;
            let hours = statement.query_map([], |row| {
                Ok(ClosedHour {
                    hour: Nanos::new(row.get(0)?),
                    cluster: row.get(1)?,
                    revision: row.get(2)?,
                })
            })?;
            hours.collect()
        })
    }

    /// Hours that are due to be closed.
    pub fn due_hours(&self) -> Result<DueHours, StoreError> {
        self.query("reading due hours", |connection| {
            let mut statement = connection.prepare(
                "SELECT DISTINCT hour_ns, hour_ns IN (SELECT hour_ns FROM cost_hour_rows)
                 FROM due_hour_rows ORDER BY hour_ns",
            )?;
            let hours =
                statement.query_map([], |row| Ok((Nanos::new(row.get(0)?), row.get(1)?)))?;
            hours.collect()
        })
    }

    /// Reports that all events up to this number are stored elsewhere as well.
    pub fn confirm(&self, last: u64) {
        self.progress.copied.store(last, Ordering::Release);
    }

    /// Number of the last event that is confirmed.
    pub fn confirmed(&self) -> u64 {
        self.progress.copied.load(Ordering::Acquire)
    }

    /// Number of events that were deleted before they were confirmed.
    pub fn lost(&self) -> Counter {
        self.progress.lost.clone()
    }

    /// Runs a query.
    fn query<T>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Connection) -> EngineResult<T>,
    ) -> Result<T, StoreError> {
        let _reading = self.gate.enter();
        read(&self.connection).map_err(engine(doing))
    }
}
