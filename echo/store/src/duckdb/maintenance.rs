//! Maintenance thread: checkpoints the log and enforces the retention limits every few seconds.
//! Checks ten times a second that the file is still there, and in each round that it can be
//! written.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::duckdb::checkpoint::Checkpoints;
use crate::duckdb::lock::Lock;
use crate::duckdb::retention::Retention;
use crate::duckdb::shutdown::Signal;
use crate::duckdb::writer::Joined;
use crate::timings::Stopwatch;

/// Interval of checks of the checkpoint backlog.
const BACKLOG_CHECK_EVERY: Duration = Duration::from_millis(100);

/// Maintenance thread, stopped on drop.
#[derive(Debug)]
pub(super) struct Maintenance {
    // Fields are dropped in this order: the thread is signalled to stop, then joined.
    stop: Stop,
    _thread: Joined,
    /// Closed by the thread once it has released the connection and the lock.
    ended: watch::Receiver<()>,
}

/// State of the maintenance thread.
#[derive(Debug)]
pub(super) struct MaintenanceRounds {
    /// Runs checkpoints.
    pub(super) checkpoints: Checkpoints,
    /// Enforces the limits.
    pub(super) retention: Option<Retention>,
}

#[derive(Debug)]
struct Stop(Arc<Signal>);

impl Maintenance {
    /// Starts the thread; a round begins every `every`.
    pub(super) fn start(
        mut rounds: MaintenanceRounds,
        lock: Arc<Lock>,
        every: Duration,
    ) -> io::Result<Self> {
        let signal = Arc::new(Signal::default());
        let stop = Stop(Arc::clone(&signal));
        let (running, ended) = watch::channel(());
        let thread = Joined::start("store-upkeep", move || {
            let mut rested = Stopwatch::start();
            let (mut is_busy, mut can_write) = (false, true);
            // A checkpoint of a lost file would remove the log of the file that replaced it.
            while !signal.stopped_within(every.min(BACKLOG_CHECK_EVERY))
                && rounds.checkpoints.file_check.check().is_ok()
            {
                if rested.elapsed() >= every {
                    rounds.checkpoints.file_check.check_writable(&lock);
                    rounds.one(&signal, every, std::mem::take(&mut is_busy));
                    rested = Stopwatch::start();
                    can_write = true;
                } else if can_write && rounds.checkpoints.backlog.is_large() {
                    // After a failure wait for the next round.
                    can_write = rounds.checkpoints.run(true);
                    is_busy = true;
                }
            }
            drop(rounds);
            drop(lock);
            drop(running);
        })?;
        Ok(Self {
            stop,
            _thread: thread,
            ended,
        })
    }

    /// Stops the thread and waits until it has released the database.
    pub(super) async fn stop(&self) {
        self.stop.0.stop();
        // Nothing is ever sent; the channel closes when the thread ends.
        let _closed = self.ended.clone().changed().await;
    }
}

impl MaintenanceRounds {
    /// Runs one round, `after` the last one. `is_busy` means that the backlog is large.
    pub(super) fn one(&mut self, signal: &Signal, after: Duration, is_busy: bool) {
        let Self {
            checkpoints,
            retention,
        } = self;
        let _written = checkpoints.run(is_busy);
        let connection = &checkpoints.connection;
        if let Some(retention) = retention {
            retention.round(connection, signal, after, || checkpoints.reclaim());
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
