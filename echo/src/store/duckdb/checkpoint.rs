//! A thread that writes the log to the database file every few seconds, so that no commit has to do it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use duckdb::Connection;
use tokio::sync::watch;

use crate::store::duckdb::lock::Lock;
use crate::store::duckdb::rows::schema;
use crate::store::duckdb::writer::Joined;
use crate::store::timings::{Timings, timed};

/// Runs until it is dropped.
#[derive(Debug)]
pub(super) struct Checkpoints {
    // Fields are dropped in this order: the thread is told to stop, then waited for.
    stop: Stop,
    _thread: Joined,
    /// Closed by the thread once it holds neither the connection nor the lock any more.
    ended: watch::Receiver<()>,
}

#[derive(Debug)]
struct Stop(Arc<Signal>);

#[derive(Debug, Default)]
struct Signal {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Checkpoints {
    /// Starts the thread. `dirty` says whether there is something to write.
    pub(super) fn start(
        connection: Connection,
        lock: Arc<Lock>,
        (every, dirty): (Duration, Arc<AtomicBool>),
        timings: Timings,
    ) -> io::Result<Self> {
        let signal = Arc::new(Signal::default());
        let stop = Stop(Arc::clone(&signal));
        let (running, ended) = watch::channel(());
        let thread = Joined::start("store-checkpoint", move || {
            while !signal.stopped_within(every) {
                checkpoint(&connection, &dirty, &timings);
            }
            drop(connection);
            drop(lock);
            drop(running);
        })?;
        Ok(Self {
            stop,
            _thread: thread,
            ended,
        })
    }

    /// Stops the thread and waits until it has let go of the database.
    pub(super) async fn stop(&self) {
        self.stop.0.stop();
        // Nothing is ever sent; the channel closes when the thread ends.
        let _closed = self.ended.clone().changed().await;
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Signal {
    fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn stopped_within(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let (stopped, _) = self
            .changed
            .wait_timeout_while(stopped, time, |stopped| !*stopped)
            .unwrap_or_else(PoisonError::into_inner);
        *stopped
    }
}

fn checkpoint(connection: &Connection, dirty: &AtomicBool, timings: &Timings) {
    // The mark goes first, so that what is committed meanwhile sets it again.
    if !dirty.swap(false, Ordering::AcqRel) {
        return;
    }
    let write = || connection.execute_batch(schema::CHECKPOINT);
    if let Err(error) = timed(&timings.checkpoints, write) {
        // The log is kept, and there is still something to write in the next round.
        dirty.store(true, Ordering::Release);
        timings.failed_checkpoints.inc();
        tracing::warn!(%error, "a checkpoint failed");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use duckdb::Connection;

    use super::checkpoint;
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
        checkpoint(&connection, &dirty, &timings);
        assert!(dirty.load(Ordering::Acquire));
        assert_eq!(timings.failed_checkpoints.get(), 1);
        connection.execute_batch("COMMIT").unwrap();
        checkpoint(&connection, &dirty, &timings);
        assert!(!dirty.load(Ordering::Acquire));
    }
}
