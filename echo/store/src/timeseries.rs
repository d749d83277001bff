//! The course of signals over time: sums per rank and stretch, which is what a picture of a whole cluster is made of.
//!
//! All reports of one block come into the same stretch, whatever the senders' clocks say: that of the mean of their times.

use std::sync::Arc;

use echo_core::ids::{ClusterId, CommId, MetricName, Op, RoleId};
use echo_core::model::event::{Origin, Source};
use echo_core::units::Window;

/// Which sums are meant by [`crate::EventStore::timeseries`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeseriesQuery {
    /// Cluster.
    pub cluster: ClusterId,
    /// Histogram signals of blocks.
    pub metrics: Vec<MetricName>,
    /// Event time on the senders' clocks, cut up into stretches.
    pub stretches: TimeBuckets,
}

/// A window in pieces of equal length, the last of which may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeBuckets {
    window: Window,
    length_nanos: i64,
    sampled_nanos: i64,
}

impl TimeBuckets {
    /// Pieces of that length, of which only the beginning is looked at; nothing when one of them is empty.
    pub fn new(window: Window, length_nanos: i64, sampled_nanos: i64) -> Option<Self> {
        let sampled_nanos = sampled_nanos.min(length_nanos);
        (sampled_nanos > 0).then_some(Self {
            window,
            length_nanos,
            sampled_nanos,
        })
    }

    /// The window as a whole.
    pub const fn window(self) -> Window {
        self.window
    }

    /// Length of a piece, nanoseconds.
    pub const fn length_nanos(self) -> i64 {
        self.length_nanos
    }

    /// How much of the beginning of each piece is looked at, nanoseconds.
    pub const fn sampled_nanos(self) -> i64 {
        self.sampled_nanos
    }

    /// Number of pieces.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "as many as a caller asks for, which are few"
    )]
    pub const fn n(self) -> usize {
        let span = self.window.to().value() - self.window.from().value();
        // A window is never empty, and neither is a piece of it.
        ((span + self.length_nanos - 1) / self.length_nanos).unsigned_abs() as usize
    }
}

/// What one rank reported of one signal and communicator in one stretch.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeseriesPoint {
    /// Who.
    pub origin: Arc<Origin>,
    /// The signal.
    pub metric: MetricName,
    /// Where it was measured.
    pub source: Source,
    /// Role of the rank, when the sender knows it.
    pub role: Option<RoleId>,
    /// Communicator.
    pub comm: CommId,
    /// Operation.
    pub op: Option<Op>,
    /// Place of the stretch in the window, counted from 0.
    pub bucket: i64,
    /// Number of samples.
    pub count: f64,
    /// Sum of the samples, in the unit of the signal.
    pub sum: f64,
    /// Iterations of the blocks that they came with.
    pub iterations: f64,
}

/// Longest time between reports of one block, nanoseconds. Those that are further apart are of runs of a job that count anew.
pub(super) const MAX_APART_NANOS: i64 = 120_000_000_000;
