//! A thread that looks after the database every few seconds: it writes the log to the file, and sees to it that the
//! limits are kept. Ten times a second it looks whether the file is still there, and in each round whether it can be written.

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

/// Time between two looks at how much there is to write.
const BACKLOG_CHECK_EVERY: Duration = Duration::from_millis(100);

/// Runs until it is dropped.
#[derive(Debug)]
pub(super) struct Maintenance {
    // Fields are dropped in this order: the thread is told to stop, then waited for.
    stop: Stop,
    _thread: Joined,
    /// Closed by the thread once it holds neither the connection nor the lock any more.
    ended: watch::Receiver<()>,
}

/// What the thread owns.
#[derive(Debug)]
pub(super) struct MaintenanceRounds {
    /// Writes the log to the file.
    pub(super) checkpoints: Checkpoints,
    /// The limits.
    pub(super) retention: Retention,
}

#[derive(Debug)]
struct Stop(Arc<Signal>);

impl Maintenance {
    /// Starts the thread; a round begins `every` so often.
    pub(super) fn start(mut rounds: MaintenanceRounds, lock: Arc<Lock>, every: Duration) -> io::Result<Self> {
        let signal = Arc::new(Signal::default());
        let stop = Stop(Arc::clone(&signal));
        let (running, ended) = watch::channel(());
        let thread = Joined::start("store-upkeep", move || {
            let mut rested = Stopwatch::start();
            let (mut is_busy, mut can_write) = (false, true);
            // A checkpoint of a lost file would remove the log of the one that lies in its place.
            while !signal.stopped_within(every.min(BACKLOG_CHECK_EVERY))
                && rounds.checkpoints.presence.check().is_ok()
            {
                if rested.elapsed() >= every {
                    rounds.checkpoints.presence.check_writable(&lock);
                    rounds.one((&signal, every), std::mem::take(&mut is_busy));
                    rested = Stopwatch::start();
                    can_write = true;
                } else if can_write && rounds.checkpoints.backlog.is_large() {
                    // After one that failed it waits for the next round.
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

    /// Stops the thread and waits until it has let go of the database.
    pub(super) async fn stop(&self) {
        self.stop.0.stop();
        // Nothing is ever sent; the channel closes when the thread ends.
        let _closed = self.ended.clone().changed().await;
    }
}

impl MaintenanceRounds {
    /// One round, `after` the last one, in which there was a lot to write or not.
    pub(super) fn one(&mut self, (signal, after): (&Signal, Duration), is_busy: bool) {
        let Self {
            checkpoints,
            retention,
        } = self;
        let _written = checkpoints.run(is_busy);
        let connection = &checkpoints.connection;
        retention.round(connection, (signal, after), || checkpoints.reclaim());
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
