//! Writes the log to the database file, so that no commit has to do it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duckdb::Connection;

use crate::spans;
use crate::store::duckdb::EngineResult;
use crate::store::duckdb::fatal::Fatal;
use crate::store::duckdb::rows::schema;
use crate::store::timings::{Timings, timed};

/// What the engine says when it refuses a checkpoint in the middle of a commit.
const MID_COMMIT: &str = "other write transactions active";

/// Time until it is asked again, and how often: a second in all, many times what a commit takes.
const ASK_AGAIN: Duration = Duration::from_millis(2);
const MOST_REFUSALS: u32 = 500;

/// Writes the log to the file, if `dirty` says that there is something in it.
pub(super) fn checkpoint(
    connection: &Connection,
    (dirty, fatal): (&AtomicBool, &Fatal),
    timings: &Timings,
) {
    // The mark goes first, so that what is committed meanwhile sets it again.
    if !dirty.swap(false, Ordering::AcqRel) {
        return;
    }
    let write = || between_commits(|| connection.execute_batch(schema::CHECKPOINT));
    let span = tracing::trace_span!(target: spans::TARGET, spans::CHECKPOINT);
    if let Err(error) = span.in_scope(|| timed(&timings.checkpoints, write)) {
        // The log is kept, and there is still something to write in the next round.
        dirty.store(true, Ordering::Release);
        fatal.note(&error.to_string());
        timings.failed_checkpoints.inc();
        tracing::warn!(%error, "a checkpoint failed");
    }
}

/// Asks again while the engine refuses because a commit is going on: it begins a checkpoint only between two.
fn between_commits(checkpoint: impl Fn() -> EngineResult<()>) -> EngineResult<()> {
    let mut refused = 0;
    loop {
        match checkpoint() {
            Err(error) if refused < MOST_REFUSALS && error.to_string().contains(MID_COMMIT) => {
                refused += 1;
            }
            outcome => return outcome,
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a thread of its own, and nothing tells when a commit has ended"
        )]
        std::thread::sleep(ASK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use duckdb::Connection;

    use super::checkpoint;
    use crate::store::duckdb::fatal::Fatal;
    use crate::store::timings::Timings;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a database of the test's own")]
    fn a_checkpoint_that_failed_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(folder.path().join("echo.db")).unwrap();
        let dirty = AtomicBool::new(true);
        // The engine refuses a checkpoint in the middle of a transaction that writes.
        connection
            .execute_batch("CREATE TABLE t (n BIGINT); BEGIN; INSERT INTO t VALUES (1)")
            .unwrap();
        let timings = Timings::default();
        checkpoint(&connection, (&dirty, &Fatal::default()), &timings);
        assert!(dirty.load(Ordering::Acquire));
        assert_eq!(timings.failed_checkpoints.get(), 1);
        connection.execute_batch("COMMIT").unwrap();
        checkpoint(&connection, (&dirty, &Fatal::default()), &timings);
        assert!(!dirty.load(Ordering::Acquire));
    }
}
