//! Writes the log to the database file, so that no commit has to do it.
//!
//! A commit that adds to a table waits while the table is written, so little is written at a time. The engine also uses a
//! checkpoint to merge what was written in small pieces and to give free what was deleted, and lets nobody write
//! meanwhile: that is left to checkpoints of which there is little to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use duckdb::Connection;
use echo_core::spans;

use crate::duckdb::engine::EngineResult;
use crate::duckdb::file_check::FileCheck;
use crate::duckdb::rows::{partition, schema};
use crate::timings::{Timings, timed};

/// What the engine says when it refuses a checkpoint in the middle of a commit.
const MID_COMMIT: &str = "other write transactions active";

/// Time until it is asked again, and how often: a second in all, many times what a commit takes.
const RETRY_EVERY: Duration = Duration::from_millis(2);
const MAX_RETRIES: u32 = 500;

/// Events that are worth a checkpoint before its time: to write them takes some fifty milliseconds.
const CHECKPOINT_EARLY_EVENTS: u64 = 50_000;

/// Events from which on a checkpoint merges nothing: pieces of that size need not be merged.
const MERGE_BELOW_EVENTS: u64 = 20_000;

/// Checkpoints that try to give free what was deleted. Those cannot that begin while a question reads what was there before.
const RECLAIM_ATTEMPTS: u32 = 24;

/// What was committed since the last checkpoint began.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    dirty: AtomicBool,
    events: AtomicU64,
    /// Checkpoints that may yet be needed to give free what was deleted.
    owed: AtomicU32,
}

/// Writes the log to the file.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// A connection that writes nothing but checkpoints.
    pub(super) connection: Connection,
    /// Another, which writes nothing and keeps the engine from merging while it seems to.
    pub(super) holder: Connection,
    /// What there is to write.
    pub(super) backlog: Arc<Backlog>,
    /// Whether the file is still there; without it nothing is written.
    pub(super) presence: FileCheck,
    /// Where the time that checkpoints take is added.
    pub(super) timings: Timings,
}

impl Backlog {
    /// Notes a commit of so many events.
    pub(super) fn add(&self, events: u64) {
        self.events.fetch_add(events, Ordering::AcqRel);
        self.dirty.store(true, Ordering::Release);
    }

    /// Notes that events were deleted whose room should come back.
    pub(super) fn request_reclaim(&self) {
        self.owed.store(RECLAIM_ATTEMPTS, Ordering::Release);
        self.add(0);
    }

    fn is_reclaim_requested(&self) -> bool {
        self.owed.load(Ordering::Acquire) > 0
    }

    /// Whether a checkpoint should not wait for its time.
    pub(super) fn is_large(&self) -> bool {
        self.events.load(Ordering::Acquire) >= CHECKPOINT_EARLY_EVENTS
    }
}

impl Checkpoints {
    /// Writes what there is to write. Merges and gives room free while that is little and Echo is not busy, or where room is
    /// owed. False when it failed.
    pub(super) fn run(&self, is_busy: bool) -> bool {
        let events = self.backlog.events.load(Ordering::Acquire);
        if (is_busy || events >= MERGE_BELOW_EVENTS) && !self.backlog.is_reclaim_requested() {
            self.write_if_dirty(|| self.without_merging())
        } else {
            self.run_full()
        }
    }

    /// Gives free what was deleted, now or in one of the next rounds.
    pub(super) fn reclaim(&self) {
        self.backlog.request_reclaim();
        let _written = self.run_full();
    }

    /// Writes what there is to write, merges, and gives free what was deleted. False when it failed.
    pub(super) fn run_full(&self) -> bool {
        let used = || partition::blocks(&self.connection).map_or(0, |blocks| blocks.used);
        let before = used();
        let written = self.write_if_dirty(|| {
            if self.backlog.is_reclaim_requested() {
                self.rewrite_newest_rows()?;
            }
            self.connection.execute_batch(schema::CHECKPOINT)
        });
        if self.backlog.is_reclaim_requested() {
            let is_settled = used() < before;
            let left = |tries: u32| {
                Some(if is_settled {
                    0
                } else {
                    tries.saturating_sub(1)
                })
            };
            // Never an error, because there always is a new value.
            let _before = self
                .backlog
                .owed
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
            // To ask again, even if nothing is committed meanwhile.
            self.backlog.add(0);
        }
        written
    }

    /// Lets the engine look once more at what was deleted.
    fn rewrite_newest_rows(&self) -> EngineResult<()> {
        let moving = self.connection.unchecked_transaction()?;
        moving.execute_batch(schema::MOVE_NEWEST)?;
        moving.commit()
    }

    /// The engine merges only while no transaction writes.
    fn without_merging(&self) -> EngineResult<()> {
        // Rolled back when it is dropped.
        let seeming = self.holder.unchecked_transaction()?;
        seeming.execute_batch(schema::SEEM_TO_WRITE)?;
        self.connection.execute_batch(schema::CHECKPOINT)
    }

    fn write_if_dirty(&self, write: impl Fn() -> EngineResult<()>) -> bool {
        // The marks go first, so that what is committed meanwhile sets them again.
        let events = self.backlog.events.swap(0, Ordering::AcqRel);
        if !self.backlog.dirty.swap(false, Ordering::AcqRel) {
            return true;
        }
        let span = tracing::trace_span!(target: spans::TARGET, spans::CHECKPOINT);
        let written = || between_commits(write);
        if let Err(error) = span.in_scope(|| timed(&self.timings.checkpoints, written)) {
            // The log is kept, and there is still something to write in the next round.
            self.backlog.add(events);
            self.presence.fatal().record(&error.to_string());
            self.timings.failed_checkpoints.inc();
            tracing::warn!(%error, "a checkpoint failed");
            return false;
        }
        true
    }
}

/// Asks again while the engine refuses because a commit is going on: it begins a checkpoint only between two.
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
            reason = "a thread of its own, and nothing tells when a commit has ended"
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

    use super::{Backlog, Checkpoints, CHECKPOINT_EARLY_EVENTS, MERGE_BELOW_EVENTS, partition};
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
        let checkpoints = Checkpoints {
            connection: writer.try_clone().unwrap(),
            holder: writer.try_clone().unwrap(),
            backlog: Arc::new(Backlog::default()),
            presence: FileCheck::new(&path, Fatal::default()).unwrap(),
            timings: Timings::default(),
        };
        (writer, checkpoints, folder)
    }

    fn row_groups(connection: &Connection) -> i64 {
        let groups = "SELECT count(DISTINCT row_group_id) FROM pragma_storage_info('event_rows')";
        connection.query_row(groups, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_checkpoint_that_failed_is_tried_again() {
        let (writer, checkpoints, _folder) = database();
        // The engine refuses a checkpoint while a transaction changes what a table is.
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
    fn small_pieces_are_merged_and_large_ones_are_written_without_waiting_for_that() {
        let (writer, checkpoints, _folder) = database();
        let add = |events: u64, is_busy: bool| {
            let rows = "INSERT INTO event_rows SELECT range, range FROM range(30000)";
            writer.execute_batch(rows).unwrap();
            checkpoints.backlog.add(events);
            assert!(checkpoints.run(is_busy));
            row_groups(&writer)
        };
        assert_eq!(
            [add(MERGE_BELOW_EVENTS, false), add(MERGE_BELOW_EVENTS, false), add(1, true)],
            [1, 2, 3]
        );
        assert!(add(1, false) < 4, "little is merged with the others");
    }

    #[test]
    fn room_that_is_owed_comes_back_although_echo_is_busy() {
        let (writer, checkpoints, _folder) = database();
        let used = || partition::blocks(&checkpoints.connection).unwrap().used;
        let rows = "INSERT INTO event_rows SELECT range, hash(range) // 2 FROM range(500000)";
        writer.execute_batch(rows).unwrap();
        checkpoints.backlog.add(CHECKPOINT_EARLY_EVENTS);
        checkpoints.run(true);
        let full = used();
        // Somebody still reads what is deleted.
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
        // Nothing is committed meanwhile: at the floor no events are taken.
        checkpoints.run(true);
        assert!(used() < full / 2);
        assert!(!checkpoints.backlog.is_reclaim_requested());
    }
}
