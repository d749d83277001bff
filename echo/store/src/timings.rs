//! Durations of store operations, and counters of refused and deleted events.

use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

/// Upper bounds of the buckets, seconds; an acknowledgement may take 0.25.
const BOUNDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Metrics since the store was opened. Clones share the same metrics.
#[derive(Debug, Clone)]
pub struct Timings {
    /// Seconds from the start of a transaction until it is durable.
    pub commits: Histogram,
    /// Seconds that a checkpoint takes.
    pub checkpoints: Histogram,
    /// Failed checkpoints.
    pub failed_checkpoints: Counter,
    /// Events refused because the volume was nearly full; counted each time they are sent.
    pub refused_events: Counter,
    /// Events deleted by retention.
    pub deleted_events: Counter,
    /// Events that were acknowledged and are missing, which was accepted by a repair.
    pub lost_events: Counter,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            commits: seconds(),
            checkpoints: seconds(),
            failed_checkpoints: Counter::default(),
            refused_events: Counter::default(),
            deleted_events: Counter::default(),
            lost_events: Counter::default(),
        }
    }
}

/// Returns a histogram of seconds, from a millisecond to half a minute.
pub fn seconds() -> Histogram {
    Histogram::new(BOUNDS)
}

/// Runs `work` and records its duration, seconds.
pub fn timed<T>(times: &Histogram, work: impl FnOnce() -> T) -> T {
    let begun = Stopwatch::start();
    let done = work();
    begun.stop(times);
    done
}

/// Measures a duration that spans several calls.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    #[expect(
        clippy::disallowed_methods,
        reason = "no instant that anything is decided by, and a clock that never jumps"
    )]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Records the time since the start, seconds.
    pub fn stop(self, times: &Histogram) {
        times.observe(self.0.elapsed().as_secs_f64());
    }
}
