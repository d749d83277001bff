//! A thread that writes the log to the database file every few seconds, so that no commit has to do it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use duckdb::Connection;

use crate::store::duckdb::lock::Lock;
use crate::store::duckdb::rows::schema;
use crate::store::duckdb::writer::Joined;

/// Runs until it is dropped.
#[derive(Debug)]
pub(super) struct Checkpoints {
    // Fields are dropped in this order: the thread is told to stop, then waited for.
    stop: Stop,
    _thread: Joined,
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
    ) -> io::Result<Self> {
        let signal = Arc::new(Signal::default());
        let stop = Stop(Arc::clone(&signal));
        let thread = Joined::start("store-checkpoint", move || {
            while !signal.stopped_within(every) {
                if dirty.swap(false, Ordering::AcqRel) {
                    checkpoint(&connection);
                }
            }
            drop(connection);
            drop(lock);
        })?;
        Ok(Self {
            stop,
            _thread: thread,
        })
    }

    /// Tells the thread to stop, without waiting for it.
    pub(super) fn stop(&self) {
        self.stop.0.stop();
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

fn checkpoint(connection: &Connection) {
    if let Err(error) = connection.execute_batch(schema::CHECKPOINT) {
        // The log is kept; the next round or a later commit writes it.
        tracing::warn!(%error, "a checkpoint failed");
    }
}
