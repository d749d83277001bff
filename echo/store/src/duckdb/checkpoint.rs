//! Checkpoints: write the log to the database file, so that no commit has to.
//!
//! A commit that appends to a table waits while the table is checkpointed, so each checkpoint is
//! kept small. The engine also uses checkpoints to merge small row groups and to free deleted rows,
//! and blocks all writes meanwhile: this is left to checkpoints with little to write.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use duckdb::Connection;
use echo_core::spans;

use crate::StoreError;
use crate::duckdb::backup_lock::BackupLock;
use crate::duckdb::engine::{EngineResult, engine};
use crate::duckdb::file_check::FileCheck;
use crate::duckdb::lock::beside;
use crate::duckdb::read_gate::ReadGate;
use crate::duckdb::rows::{partition, schema};
use crate::duckdb::sql::file_turns::{FileTurns, Urgency};
use crate::timings::{Timings, timed};

/// Error of the engine when a commit is in progress.
const MID_COMMIT: &str = "other write transactions active";

/// Retry interval and maximum number of retries: a second in total, many times the duration of a
/// commit.
const RETRY_EVERY: Duration = Duration::from_millis(2);
const MAX_RETRIES: u32 = 500;

/// Number of events that triggers an early checkpoint: writing them takes about fifty milliseconds.
const CHECKPOINT_EARLY_EVENTS: u64 = 50_000;

/// Number of events from which a checkpoint merges nothing: row groups of that size need no
/// merging.
const MERGE_BELOW_EVENTS: u64 = 20_000;

/// Maximum number of checkpoints that try to free deleted rows. A checkpoint frees them only if no
/// query that began before the last commit, or before another query ended, is running: under load
/// there always is one, so all attempts but the first hold queries back.
const RECLAIM_ATTEMPTS: u32 = 24;

/// Maximum time that queries are held back until those that are running have ended.
const RECLAIM_PATIENCE: Duration = Duration::from_millis(500);

/// Size of the log above which a checkpoint is urgent, bytes: a statement reads it in a fraction of a second.
const LONG_LOG_BYTES: u64 = 32 << 20;
/// Size of the log for which no backup is waited, bytes: it fails then.
const TOO_LONG_LOG_BYTES: u64 = 512 << 20;

/// Outcome of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Written,
    /// Nothing was committed since the last checkpoint.
    NotNeeded,
    /// Statements or a backup read the file; the next round tries again.
    PutOff,
    Failed,
}

/// Changes committed since the last checkpoint began.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    dirty: AtomicBool,
    events: AtomicU64,
    /// Remaining checkpoints that may try to free deleted rows.
    owed: AtomicU32,
}

/// Runs checkpoints.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Connection used only for checkpoints.
    pub(super) connection: Connection,
    /// Connection that holds a write transaction without changes, which keeps the engine from
    /// merging.
    holder: Connection,
    /// Changes to be written.
    pub(super) backlog: Arc<Backlog>,
    /// Gate of the queries, closed while deleted rows are freed.
    gate: Arc<ReadGate>,
    /// Lock that a backup holds.
    backup_lock: BackupLock,
    /// Turns at the file, which statements read in other processes.
    turns: Arc<FileTurns>,
    /// Checks that the file is still there; without it nothing is written.
    pub(super) file_check: FileCheck,
    /// Metrics.
    timings: Timings,
}

impl Backlog {
    /// Records a commit of this number of events.
    pub(super) fn add(&self, events: u64) {
        self.events.fetch_add(events, Ordering::AcqRel);
        self.dirty.store(true, Ordering::Release);
    }

    /// Records that events were deleted whose space should be freed.
    pub(super) fn request_reclaim(&self) {
        self.owed.store(RECLAIM_ATTEMPTS, Ordering::Release);
        self.add(0);
    }

    fn is_reclaim_requested(&self) -> bool {
        self.owed.load(Ordering::Acquire) > 0
    }

    fn is_reclaim_retried(&self) -> bool {
        (1..RECLAIM_ATTEMPTS).contains(&self.owed.load(Ordering::Acquire))
    }

    /// Returns true if the backlog warrants an early checkpoint.
    pub(super) fn is_large(&self) -> bool {
        self.events.load(Ordering::Acquire) >= CHECKPOINT_EARLY_EVENTS
    }
}

impl Checkpoints {
    /// Checkpoints through two connections beside this one.
    pub(super) fn beside(
        connection: &Connection,
        backlog: Arc<Backlog>,
        (gate, turns): (Arc<ReadGate>, Arc<FileTurns>),
        file_check: FileCheck,
        timings: Timings,
    ) -> Result<Self, StoreError> {
        let starting = engine("starting");
        let backup_lock =
            BackupLock::open(file_check.path()).map_err(|error| StoreError::Unsuitable {
                path: file_check.path().display().to_string(),
                reason: format!("cannot open its lock file for backups ({error})"),
            })?;
        Ok(Self {
            backup_lock,
            connection: connection.try_clone().map_err(&starting)?,
            holder: connection.try_clone().map_err(&starting)?,
            backlog,
            gate,
            turns,
            file_check,
            timings,
        })
    }

    /// Checkpoints the backlog. Merges and frees space if the backlog is small and the store is
    /// idle, or if space is to be reclaimed. Returns false on failure.
    pub(super) fn run(&self, is_busy: bool) -> bool {
        let events = self.backlog.events.load(Ordering::Acquire);
        if (is_busy || events >= MERGE_BELOW_EVENTS) && !self.backlog.is_reclaim_requested() {
            self.write_if_dirty(|| self.without_merging()) != Outcome::Failed
        } else {
            self.run_full()
        }
    }

    /// Frees deleted rows, now or in one of the next rounds.
    pub(super) fn reclaim(&self) {
        self.backlog.request_reclaim();
        let _written = self.run_full();
    }

    /// Checkpoints the backlog, merges, and frees deleted rows. Returns false on failure.
    pub(super) fn run_full(&self) -> bool {
        let used = || partition::blocks(&self.connection).map_or(0, |blocks| blocks.used);
        let before = used();
        let outcome = self.write_if_dirty(|| {
            if self.backlog.is_reclaim_requested() {
                self.rewrite_newest_rows()?;
            }
            let _closed = self
                .backlog
                .is_reclaim_retried()
                .then(|| self.gate.close(RECLAIM_PATIENCE));
            self.connection.execute_batch(schema::CHECKPOINT)
        });
        // One that is put off frees nothing, and is no attempt.
        if outcome == Outcome::Written && self.backlog.is_reclaim_requested() {
            let is_settled = used() < before;
            let left = |tries: u32| {
                Some(if is_settled {
                    0
                } else {
                    tries.saturating_sub(1)
                })
            };
            // Never an error, because there is always a new value.
            let _before = self
                .backlog
                .owed
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
            // Schedule a retry even if nothing is committed meanwhile.
            self.backlog.add(0);
        }
        outcome != Outcome::Failed
    }

    /// Makes the engine consider deleted rows again.
    fn rewrite_newest_rows(&self) -> EngineResult<()> {
        let moving = self.connection.unchecked_transaction()?;
        moving.execute_batch(schema::MOVE_NEWEST)?;
        moving.commit()
    }

    /// Checkpoints without merging: the engine merges only while no transaction writes.
    fn without_merging(&self) -> EngineResult<()> {
        // Rolled back on drop.
        let seeming = self.holder.unchecked_transaction()?;
        seeming.execute_batch(schema::SEEM_TO_WRITE)?;
        self.connection.execute_batch(schema::CHECKPOINT)
    }

    fn write_if_dirty(&self, write: impl Fn() -> EngineResult<()>) -> Outcome {
        if !self.backlog.dirty.load(Ordering::Acquire) {
            return Outcome::NotNeeded;
        }
        let is_urgent = self.backlog.is_reclaim_requested() || self.is_log_at_least(LONG_LOG_BYTES);
        let urgency = if is_urgent {
            Urgency::Urgent
        } else {
            Urgency::Usual
        };
        let no_backup = self.backup_lock.before_checkpoint();
        if no_backup.is_none() && !self.is_log_at_least(TOO_LONG_LOG_BYTES) {
            return Outcome::PutOff;
        }
        let Some(_turn) = self.turns.checkpoint(urgency) else {
            return Outcome::PutOff;
        };
        // Clear the counters first, so that commits during the checkpoint are counted again.
        let events = self.backlog.events.swap(0, Ordering::AcqRel);
        if !self.backlog.dirty.swap(false, Ordering::AcqRel) {
            return Outcome::NotNeeded;
        }
        let span = tracing::trace_span!(target: spans::TARGET, spans::CHECKPOINT);
        let written = || between_commits(write);
        if let Err(error) = span.in_scope(|| timed(&self.timings.checkpoints, written)) {
            // The log is kept, so the next round has to write it.
            self.backlog.add(events);
            self.file_check.fatal().record(&error.to_string());
            self.timings.failed_checkpoints.inc();
            tracing::warn!(%error, "checkpoint failed");
            return Outcome::Failed;
        }
        Outcome::Written
    }

    fn is_log_at_least(&self, bytes: u64) -> bool {
        let log = fs::metadata(beside(self.file_check.path(), ".wal"));
        log.is_ok_and(|log| log.len() >= bytes)
    }
}

/// Retries while the engine refuses because a commit is in progress: it begins a checkpoint only
/// between two.
fn between_commits(checkpoint: impl Fn() -> EngineResult<()>) -> EngineResult<()> {
    let mut refused = 0;
    loop {
        match checkpoint() {
            Err(error) if refused < MAX_RETRIES && error.to_string().contains(MID_COMMIT) => {
                refused += 1;
            }
            outcome => return outcome,
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a thread of its own, and there is no event for the end of a commit"
        )]
        std::thread::sleep(RETRY_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use duckdb::Connection;
    use tempfile::TempDir;

    use super::{CHECKPOINT_EARLY_EVENTS, Checkpoints, MERGE_BELOW_EVENTS, partition};
    use crate::duckdb::fatal::Fatal;
    use crate::duckdb::file_check::FileCheck;
    use crate::timings::Timings;

    #[expect(clippy::disallowed_methods, reason = "a database of the test's own")]
    fn database() -> (Connection, Checkpoints, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "CREATE TABLE event_rows (event_id BIGINT, n BIGINT);
                 CREATE TABLE sample_rows (event_id BIGINT); CREATE TABLE judged_rows (n BIGINT); CHECKPOINT",
            )
            .unwrap();
        let file_check = FileCheck::new(&path, Fatal::default()).unwrap();
        let checkpoints = Checkpoints::beside(
            &writer,
            Arc::default(),
            Default::default(),
            file_check,
            Timings::default(),
        )
        .unwrap();
        (writer, checkpoints, folder)
    }

    fn row_groups(connection: &Connection) -> i64 {
        let groups = "SELECT count(DISTINCT row_group_id) FROM pragma_storage_info('event_rows')";
        connection.query_row(groups, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_failed_checkpoint_is_retried() {
        let (writer, checkpoints, _folder) = database();
        // The engine refuses a checkpoint while a transaction changes the schema of a table.
        writer
            .execute_batch("BEGIN; ALTER TABLE event_rows ADD COLUMN m BIGINT")
            .unwrap();
        checkpoints.backlog.add(CHECKPOINT_EARLY_EVENTS);
        let ways: [fn(&Checkpoints) -> bool; 2] = [|some| some.run(true), Checkpoints::run_full];
        for (failed, make) in (1..).zip(ways) {
            assert!(!make(&checkpoints));
            assert!(checkpoints.backlog.dirty.load(Ordering::Acquire));
            assert!(checkpoints.backlog.is_large());
            assert_eq!(checkpoints.timings.failed_checkpoints.get(), failed);
        }
        writer.execute_batch("COMMIT").unwrap();
        assert!(checkpoints.run(false));
        assert!(!checkpoints.backlog.dirty.load(Ordering::Acquire));
        assert!(!checkpoints.backlog.is_large());
    }

    #[test]
    fn small_row_groups_are_merged_and_large_ones_are_written_without_merging() {
        let (writer, checkpoints, _folder) = database();
        let add = |events: u64, is_busy: bool| {
            let rows = "INSERT INTO event_rows SELECT range, range FROM range(30000)";
            writer.execute_batch(rows).unwrap();
            checkpoints.backlog.add(events);
            assert!(checkpoints.run(is_busy));
            row_groups(&writer)
        };
        assert_eq!(
            [
                add(MERGE_BELOW_EVENTS, false),
                add(MERGE_BELOW_EVENTS, false),
                add(1, true)
            ],
            [1, 2, 3]
        );
        assert!(add(1, false) < 4, "little is merged with the others");
    }

    #[test]
    fn requested_space_is_reclaimed_under_load() {
        let (writer, checkpoints, _folder) = database();
        let used = || partition::blocks(&checkpoints.connection).unwrap().used;
        let rows = "INSERT INTO event_rows SELECT range, hash(range) // 2 FROM range(500000)";
        writer.execute_batch(rows).unwrap();
        checkpoints.backlog.add(CHECKPOINT_EARLY_EVENTS);
        checkpoints.run(true);
        let full = used();
        // A transaction still reads the deleted rows.
        let reading = checkpoints.connection.try_clone().unwrap();
        reading
            .execute_batch("BEGIN; SELECT count(*) FROM event_rows")
            .unwrap();
        writer
            .execute_batch("DELETE FROM event_rows WHERE event_id < 490000")
            .unwrap();
        checkpoints.backlog.request_reclaim();
        checkpoints.run(true);
        assert!(checkpoints.backlog.is_reclaim_requested());
        assert!(used() >= full, "not while it is read");
        reading.execute_batch("COMMIT").unwrap();
        // Nothing is committed meanwhile: at the floor no events are accepted.
        checkpoints.run(true);
        assert!(used() < full / 2);
        assert!(!checkpoints.backlog.is_reclaim_requested());
    }
}
