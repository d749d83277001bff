//! Store in one `DuckDB` file.
//!
//! Invariants: the file is opened once per process, under the lock beside it, and only by the
//! engine. One thread writes; every other connection is a clone that only reads, and the processes of SQL
//! statements ([`sql`]) only read. Acknowledged requests are committed.

mod acknowledged;
mod backup_lock;
mod batch_dedup;
mod batches;
mod checkpoint;
mod commit;
mod config;
mod connection_pool;
mod coverage;
mod dictionary;
mod disk_space;
mod engine;
mod event_reader;
mod failure;
mod fatal;
mod file_check;
mod file_headers;
mod filesystem;
mod group_commit;
mod hours;
mod incident_history;
pub mod inventory;
mod lake;
pub mod lake_source;
mod lock;
mod maintenance;
mod memory;
mod migrate;
mod migrations;
pub mod offline;
mod open;
mod permissions;
mod process_reports;
mod query;
mod read_gate;
mod redaction;
mod retention;
mod rows;
mod shutdown;
pub mod slices;
pub mod sql;
mod start;
mod tail_cache;
#[cfg(any(test, feature = "testing"))]
mod testing;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use echo_core::clock::Clock;
use echo_core::ids::{ClusterId, MetricName};
use echo_core::model::detector_output::{DetectorOutput, Incident, LostTime};
use echo_core::model::event::{Event, EventBatch, StoredEvent};
use echo_core::units::{Nanos, Window};
use tokio::sync::watch;

pub use crate::duckdb::config::DuckDbConfig;
use crate::duckdb::connection_pool::{ConnectionPool, Reader};
use crate::duckdb::coverage::CoverageCache;
use crate::duckdb::dictionary::Dictionary;
use crate::duckdb::disk_space::DiskSpace;
use crate::duckdb::event_reader::{TailRange, tail};
use crate::duckdb::fatal::Fatal;
use crate::duckdb::hours::HoursCache;
use crate::duckdb::lake::LakeRefresh;
use crate::duckdb::maintenance::Maintenance;
use crate::duckdb::migrations::MIGRATIONS;
use crate::duckdb::retention::Progress;
use crate::duckdb::rows::query_results::EventReader;
use crate::duckdb::rows::{detector_output, event_queries, partition, verdicts};
use crate::duckdb::slices::SliceReader;
use crate::duckdb::sql::SqlPool;
use crate::duckdb::tail_cache::TailCache;
use crate::duckdb::writer::Writer;
use crate::readiness::NotReadyReason;
use crate::reporting::merged;
use crate::resume::{Resume, WarmUp};
use crate::sql::{SqlError, SqlQuery, SqlTable, ViewDocs};
use crate::timeseries::{TimeseriesPoint, TimeseriesQuery};
use crate::timings::Timings;
use crate::{
    Appended, Coverage, EventQuery, EventStore, EvidenceQuery, EvidenceSum, ExceededLimit,
    JobQuery, Page, StoreError, Tail, TimedOperations, Vitals, finite,
};

/// Store in one database file.
///
/// Dropping it commits the queue and waits for that; [`Self::close`] does the same and returns the
/// result.
#[derive(Debug)]
pub struct DuckDbStore {
    upkeep: Maintenance,
    /// Thread that looks for newer rows of a lake, if they are read.
    _lake: Option<LakeRefresh>,
    readers: ConnectionPool,
    /// SQL, each statement in a process of its own.
    sql: SqlPool,
    /// Connection of the detector, separate so that queries cannot delay it.
    follower: ConnectionPool,
    writer: Writer,
    dictionary: Arc<Dictionary>,
    tail_cache: Arc<TailCache>,
    coverage: Arc<CoverageCache>,
    hours: Arc<HoursCache>,
    committed: watch::Receiver<u64>,
    progress: Progress,
    /// Reader for copies; taken by the thread that copies.
    slices: Mutex<Option<SliceReader>>,
    fatal: Fatal,
    path: PathBuf,
    disk_space: Arc<DiskSpace>,
    timings: Timings,
    /// Last field, so that the folder is removed after everything in it is closed.
    #[cfg(any(test, feature = "testing"))]
    _scratch: Option<tempfile::TempDir>,
}

impl DuckDbStore {
    /// Opens or creates the database and takes its lock. Blocks while the schema is migrated.
    pub fn open(config: &DuckDbConfig, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::open_with(config, clock, MIGRATIONS)
    }

    /// Fails if another process has the database open. Creates no file.
    pub fn check_unlocked(path: &Path) -> Result<(), StoreError> {
        lock::Lock::check_unlocked(&lock::canonical(path)?)
    }

    /// Waits until the engine fails permanently, for example because the disk is full in the middle
    /// of a commit, or until its file is removed or replaced. Nothing is stored from then on.
    pub async fn failed(&self) -> StoreError {
        self.fatal.wait().await
    }

    /// Metrics since the store was opened.
    pub fn timings(&self) -> Timings {
        self.timings.clone()
    }

    /// Takes the reader for copies of committed rows; `None` without
    /// [`DuckDbConfig::keep_until_copied`], and on later calls.
    pub fn take_slices(&self) -> Option<SliceReader> {
        let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        slices.take()
    }

    /// Commits the queue, checkpoints, waits for running queries and releases the lock. SQL
    /// statements are stopped. Later calls return [`StoreError::Closed`].
    pub async fn close(&self) -> Result<(), StoreError> {
        self.upkeep.stop().await;
        self.sql.close();
        // Close the writer first, so that acknowledged requests do not depend on how long queries
        // take.
        let written = self.writer.close().await;
        self.readers.close().await;
        self.follower.close().await;
        written
    }
}

/// Size of a file, bytes; 0 if absent. Uses the path: opening the file would release the engine's
/// lock.
fn bytes_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

#[async_trait]
impl EventStore for DuckDbStore {
    fn vitals(&self) -> Vitals {
        let (queued_events, queue_limit) = self.writer.queued_events();
        let (used, limits) = self.dictionary.fullness();
        Vitals {
            oldest_wait: self.writer.oldest_wait(),
            queued_events,
            queue_limit,
            database_bytes: bytes_of(&self.path),
            log_bytes: bytes_of(&lock::beside(&self.path, ".wal")),
            series: used.series as u64,
            series_limit: limits.series as u64,
            origins: used.origins as u64,
            origins_limit: limits.origins as u64,
            clusters: used.clusters as u64,
            clusters_limit: limits.clusters as u64,
        }
    }

    fn not_ready_reasons(&self) -> Vec<NotReadyReason> {
        let failed = self
            .fatal
            .reason()
            .map(|reason| NotReadyReason::Failed { reason });
        let closed = self.writer.is_closed().then_some(NotReadyReason::Closed);
        let shortage = self.disk_space.shortage();
        let full = shortage.map(|(available, floor)| NotReadyReason::Full { available, floor });
        failed.into_iter().chain(closed).chain(full).collect()
    }

    async fn append(&self, batch: EventBatch) -> Result<Appended, StoreError> {
        finite::check_batch(&batch)?;
        self.writer.append(batch).await
    }

    fn over_entry_limits(
        &self,
        events: &[Event],
        token: Option<&str>,
    ) -> Vec<(usize, ExceededLimit)> {
        self.dictionary.over_entry_limits(events, token)
    }

    async fn events(&self, query: EventQuery) -> Result<Page, StoreError> {
        let dictionary = Arc::clone(&self.dictionary);
        self.readers
            .run("reading events", move |reader| {
                event_reader::page(reader, &dictionary, &query)
            })
            .await
    }

    async fn tail(
        &self,
        after: u64,
        metrics: &[MetricName],
        limit: usize,
    ) -> Result<Tail, StoreError> {
        self.progress.followed.fetch_max(after, Ordering::AcqRel);
        if let Some(tail) = self.tail_cache.take(after, metrics, limit) {
            return Ok(tail);
        }
        let dictionary = Arc::clone(&self.dictionary);
        // Events committed later belong to the next tail, so that `until` is exact.
        let committed = *self.committed.borrow();
        let range = TailRange::new(after, committed);
        let metrics = metrics.to_vec();
        let read = move |reader: &Reader| tail(reader, &dictionary, range, &metrics, limit);
        let events = self.follower.run("reading new events", read).await?;
        let until = if events.len() < limit {
            committed.max(after)
        } else {
            events.last().map_or(after, |last| last.id)
        };
        Ok(Tail { events, until })
    }

    async fn resume(&self, warm_up: WarmUp) -> Result<Resume, StoreError> {
        let read = move |reader: &Reader| detector_output::resume(&reader.connection, warm_up);
        let doing = "reading the detector's position";
        self.follower.run(doing, read).await
    }

    async fn store_verdicts(&self, output: DetectorOutput) -> Result<(), StoreError> {
        finite::check_output(&output)?;
        self.writer.store_verdicts(output).await
    }

    async fn incidents(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<Incident>, StoreError> {
        let query = verdicts::incidents(cluster, window);
        let doing = "reading incidents";
        self.readers
            .collect(doing, query, verdicts::read_incidents)
            .await
    }

    async fn lost_time(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<LostTime>, StoreError> {
        let query = detector_output::lost_time(cluster, window);
        let doing = "reading lost time";
        self.readers
            .collect(doing, query, detector_output::read_lost_time)
            .await
    }

    async fn coverage(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<Coverage>, StoreError> {
        let dictionary = Arc::clone(&self.dictionary);
        let cache = Arc::clone(&self.coverage);
        let cluster = cluster.cloned();
        let read = move |reader: &Reader| {
            coverage::coverage(reader, &dictionary, &cache, cluster.as_ref(), window)
        };
        self.readers.run("counting reporters", read).await
    }

    async fn host_evidence(
        &self,
        queries: Vec<EvidenceQuery>,
    ) -> Result<Vec<Vec<EvidenceSum>>, StoreError> {
        let dictionary = Arc::clone(&self.dictionary);
        let read = move |reader: &Reader| {
            let mut sums = Vec::new();
            let mut rows = EventReader::new(&dictionary);
            reader.each_batch(&event_queries::host_evidence(&queries), |batch| {
                sums.extend(rows.evidence(batch)?);
                Ok(())
            })?;
            Ok(merged(queries.len(), sums))
        };
        self.readers.run("summing host evidence", read).await
    }

    async fn job_events(&self, query: JobQuery) -> Result<Vec<StoredEvent>, StoreError> {
        let dictionary = Arc::clone(&self.dictionary);
        let query = event_queries::job_events(&query);
        let read = move |reader: &Reader| {
            let mut events = event_reader::judged(reader, &dictionary, &query)?;
            events.reverse();
            Ok(events)
        };
        self.readers.run("reading events of a job", read).await
    }

    async fn timed_operations(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<TimedOperations>, StoreError> {
        let dictionary = Arc::clone(&self.dictionary);
        let query = event_queries::timed_operations(cluster, window);
        let read =
            move |reader: &Reader| event_reader::timed_operations(reader, &dictionary, &query);
        self.readers.run("counting times of operations", read).await
    }

    async fn timeseries(&self, query: TimeseriesQuery) -> Result<Vec<TimeseriesPoint>, StoreError> {
        let dictionary = Arc::clone(&self.dictionary);
        let query = event_queries::timeseries(&query);
        let read = move |reader: &Reader| event_reader::timeseries(reader, &dictionary, &query);
        self.readers.run("summing signals", read).await
    }

    async fn clusters(&self) -> Result<BTreeSet<ClusterId>, StoreError> {
        if self.writer.is_closed() {
            return Err(StoreError::Closed);
        }
        Ok(self.dictionary.clusters())
    }

    async fn extent(
        &self,
        cluster: Option<&ClusterId>,
    ) -> Result<Option<(Nanos, Nanos)>, StoreError> {
        let cluster = cluster.cloned();
        let read = move |reader: &Reader| event_reader::extent(reader, cluster.as_ref());
        let doing = "reading the first and last event";
        self.readers.run(doing, read).await
    }

    async fn dropped_until(&self) -> Result<Option<Nanos>, StoreError> {
        let read = |reader: &Reader| partition::dropped_until(&reader.connection);
        let doing = "reading what was deleted";
        self.readers.run(doing, read).await
    }

    async fn run_sql(&self, query: SqlQuery) -> Result<SqlTable, SqlError> {
        self.sql.run_query(query).await
    }

    async fn views(&self) -> Result<Vec<ViewDocs>, StoreError> {
        let read = |reader: &Reader| sql::docs::views(&reader.connection);
        self.readers.run("reading view documentation", read).await
    }

    fn is_copied(&self) -> bool {
        self.progress.waits_for_copies()
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.committed.clone()
    }
}
