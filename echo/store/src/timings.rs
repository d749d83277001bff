//! How long the store takes, and what it turned away and deleted.

use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

/// Upper bounds of the buckets, seconds: what an acknowledgement may take is 0.25.
const BOUNDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// How long the store has taken since it was opened. Cheap to clone; clones are the same.
#[derive(Debug, Clone)]
pub struct Timings {
    /// Seconds from the beginning of a transaction to its durable end.
    pub commits: Histogram,
    /// Seconds that it takes to write the log to the database file.
    pub checkpoints: Histogram,
    /// Checkpoints that failed.
    pub failed_checkpoints: Counter,
    /// Events refused because the volume was nearly full, as often as they were sent.
    pub refused_events: Counter,
    /// Events deleted to keep the limits.
    pub deleted_events: Counter,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            commits: seconds(),
            checkpoints: seconds(),
            failed_checkpoints: Counter::default(),
            refused_events: Counter::default(),
            deleted_events: Counter::default(),
        }
    }
}

/// A distribution of times from a millisecond to half a minute, seconds.
pub fn seconds() -> Histogram {
    Histogram::new(BOUNDS)
}

/// Does the work and adds the time that it takes, seconds.
pub fn timed<T>(times: &Histogram, work: impl FnOnce() -> T) -> T {
    let begun = Stopwatch::start();
    let done = work();
    begun.stop(times);
    done
}

/// Measures how long something takes that is not one call.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins to measure.
    #[expect(
        clippy::disallowed_methods,
        reason = "no instant that anything is decided by, and a clock that never jumps"
    )]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Adds the time since the start, seconds.
    pub fn stop(self, times: &Histogram) {
        times.observe(self.0.elapsed().as_secs_f64());
    }
}
