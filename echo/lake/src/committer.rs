//! The thread that copies slices to the lake. It never blocks ingest: while the lake is away, slices
//! wait in the database, and retention keeps them.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use echo_core::clock::Clock;
use echo_core::error::chain;
use echo_store::duckdb::slices::SliceReader;
use echo_store::timings::timed;

use crate::destination::{Destination, MAX_EVENTS};
use crate::error::LakeError;
use crate::location::LakeConfig;
use crate::maintenance::{Maintenance, MaintenanceConfig, RunLimits};
use crate::progress::LakeProgress;
use crate::stop::Stop;

/// Shortest and longest time before the next attempt.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Interval at which the number of waiting events is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Longest wait for the thread when it is stopped. A commit that takes longer is abandoned; the
/// next process finds out whether it was made.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of attempts to interrupt what takes longer, ten per second. The engine must not be running
/// when the process ends: it would use memory that is gone. A statement that waits for a server
/// cannot be interrupted, and does no harm.
const INTERRUPTS: u32 = 50;

/// Settings of the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitterConfig {
    /// The lake.
    pub lake: LakeConfig,
    /// Time between two commits.
    pub every: Duration,
    /// Maintenance between commits.
    pub maintenance: MaintenanceConfig,
}

/// A running thread.
#[derive(Debug)]
pub struct Committer {
    stop: Stop,
    progress: LakeProgress,
}

/// State of the thread.
#[derive(Debug)]
struct Copying {
    config: CommitterConfig,
    reader: SliceReader,
    clock: Arc<dyn Clock>,
    progress: LakeProgress,
    stop: Stop,
}

impl Committer {
    /// Starts the thread.
    pub fn start(
        config: CommitterConfig,
        reader: SliceReader,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let stop = Stop::default();
        let progress = LakeProgress::new(Arc::clone(&clock), reader.lost());
        let copying = Copying {
            config,
            reader,
            clock,
            progress: progress.clone(),
            stop: stop.clone(),
        };
        let ending = stop.clone();
        let _detached = thread::Builder::new()
            .name("lake".to_owned())
            .spawn(move || {
                copying.run();
                ending.end();
            })?;
        Ok(Self { stop, progress })
    }

    /// Progress of the copy.
    pub fn progress(&self) -> LakeProgress {
        self.progress.clone()
    }

    /// Stops after the current commit, which is interrupted after a few seconds.
    pub fn stop(&self) {
        self.stop.request();
        let has_ended =
            self.stop.wait_for_end(STOP_TIMEOUT) || self.stop.interrupt_until_end(INTERRUPTS);
        if !has_ended {
            tracing::warn!("a commit to the lake was abandoned; the next start finishes it");
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.stop.request();
    }
}

impl Copying {
    fn run(&self) {
        while !self.stop.is_requested() {
            let mut delays = ExponentialBuilder::default()
                .with_min_delay(RETRY.0)
                .with_max_delay(RETRY.1)
                .with_jitter()
                .without_max_times()
                .build();
            // A connection that failed may have committed: each attempt asks the catalog again.
            while let Err((error, has_copied)) = self.attempt() {
                self.progress.count_failure();
                self.observe(None);
                let delay = if has_copied {
                    RETRY.0
                } else {
                    delays.next().unwrap_or(RETRY.1)
                };
                tracing::warn!(
                    error = chain(&error),
                    "the lake has not taken a slice; the next attempt is in {} s",
                    delay.as_secs()
                );
                self.pause(delay, u64::MAX);
                if self.stop.is_requested() {
                    return;
                }
                if has_copied {
                    break;
                }
            }
        }
    }

    /// Connects and copies until the end is requested. An error says whether a slice was copied
    /// before it.
    fn attempt(&self) -> Result<(), (LakeError, bool)> {
        let lake = &self.config.lake;
        let opened = Destination::open(lake, &self.reader, self.clock.now(), &self.stop);
        let mut destination = opened.map_err(|error| (error, false))?;
        self.observe(Some(destination.position.event));
        let mut maintenance = Maintenance::new(self.config.maintenance);
        let limits = RunLimits {
            clock: &*self.clock,
            stop: &self.stop,
            time: self.config.every,
        };
        let mut has_copied = false;
        while !self.stop.is_requested() {
            let commits = self.progress.commits();
            let copied = timed(commits, || destination.copy(&self.reader, self.clock.now()));
            let event = destination.position.event;
            if let Some(written) = copied.map_err(|error| (error, has_copied))? {
                has_copied = true;
                self.progress.count_slice(written.events);
            }
            self.observe(Some(event));
            maintenance.run_if_due(&destination, limits, &self.progress);
            self.wait_until_due();
        }
        Ok(())
    }

    /// Confirms what the lake has, and records what it does not have.
    fn observe(&self, copied: Option<u64>) {
        if let Some(event) = copied {
            self.reader.confirm(event);
        }
        let behind = self.behind();
        match self.reader.oldest_received(self.reader.confirmed()) {
            Ok(oldest) => self.progress.set_behind(behind, oldest),
            Err(error) => tracing::debug!(%error, "cannot read the oldest event"),
        }
    }

    /// Waits until the next commit is due: after the interval, or when a full slice waits.
    fn wait_until_due(&self) {
        self.pause(self.config.every, MAX_EVENTS);
    }

    /// Waits for at most `time`, until the end is requested or so many events wait.
    fn pause(&self, time: Duration, events: u64) {
        let mut waited = Duration::ZERO;
        while waited < time {
            let step = LOOK_EVERY.min(time.saturating_sub(waited));
            if self.behind() >= events || self.stop.wait(step) {
                return;
            }
            waited += step;
            self.observe(None);
        }
    }

    /// Number of events that the lake does not have.
    fn behind(&self) -> u64 {
        let committed = *self.reader.committed().borrow();
        committed.saturating_sub(self.reader.confirmed())
    }
}
