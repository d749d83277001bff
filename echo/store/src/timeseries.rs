//! Time series of signals: sums per rank and time bucket, from which a chart of a whole cluster is
//! drawn.
//!
//! All reports of one block fall into the same bucket, that of the mean of their times, whatever
//! the senders' clocks show.

use std::sync::Arc;

use echo_core::ids::{ClusterId, CommId, MetricName, Op, RoleId};
use echo_core::model::event::{Origin, Source};
use echo_core::units::Window;

/// Query of [`crate::EventStore::timeseries`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeseriesQuery {
    /// Cluster.
    pub cluster: ClusterId,
    /// Histogram signals of blocks.
    pub metrics: Vec<MetricName>,
    /// Buckets of event time on the senders' clocks.
    pub buckets: TimeBuckets,
}

/// A window divided into buckets of equal length; the last one may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeBuckets {
    window: Window,
    length_nanos: i64,
    sampled_nanos: i64,
}

impl TimeBuckets {
    /// Divides the window into buckets of `length_nanos`, of which only the first `sampled_nanos`
    /// are read. Returns `None` if a bucket or its sampled part is empty.
    pub fn new(window: Window, length_nanos: i64, sampled_nanos: i64) -> Option<Self> {
        let sampled_nanos = sampled_nanos.min(length_nanos);
        (sampled_nanos > 0).then_some(Self {
            window,
            length_nanos,
            sampled_nanos,
        })
    }

    /// The whole window.
    pub const fn window(self) -> Window {
        self.window
    }

    /// Length of a bucket, nanoseconds.
    pub const fn length_nanos(self) -> i64 {
        self.length_nanos
    }

    /// Sampled part at the beginning of each bucket, nanoseconds.
    pub const fn sampled_nanos(self) -> i64 {
        self.sampled_nanos
    }

    /// Number of buckets.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "callers request few buckets"
    )]
    pub const fn n(self) -> usize {
        let span = self.window.to().value() - self.window.from().value();
        // Neither a window nor a bucket is ever empty.
        ((span + self.length_nanos - 1) / self.length_nanos).unsigned_abs() as usize
    }
}

/// Sum of one signal of one rank and communicator in one bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeseriesPoint {
    /// Origin.
    pub origin: Arc<Origin>,
    /// Signal.
    pub metric: MetricName,
    /// Clock that measured it.
    pub source: Source,
    /// Role of the rank, if the sender knows it.
    pub role: Option<RoleId>,
    /// Communicator.
    pub comm: CommId,
    /// Operation.
    pub op: Option<Op>,
    /// Index of the bucket in the window, from 0.
    pub bucket: i64,
    /// Number of samples.
    pub count: f64,
    /// Sum of the samples, in the unit of the signal.
    pub sum: f64,
    /// Iterations of the blocks that the samples belong to.
    pub iterations: f64,
    /// Arrivals compared with those of the other ranks, block by block; `None` for other signals
    /// and without blocks in which the clocks of most ranks start at the same completion.
    pub arrivals: Option<ComparedArrivals>,
}

/// Arrivals of a rank compared with the lower median of the ranks in each block, both counted from
/// the completion that most ranks refer to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ComparedArrivals {
    /// Number of blocks compared.
    pub blocks: f64,
    /// Sum of the differences, milliseconds.
    pub late_ms: f64,
}

/// Time beyond a sampled part in which reports of its blocks are found, nanoseconds. Clocks of hosts that
/// differ by more lose some of their blocks where only a part of the time is read.
pub(super) const SAMPLE_MARGIN_NANOS: i64 = 5_000_000_000;

/// Longest time between reports of one block, nanoseconds. Reports that are further apart belong to
/// different runs of a job.
pub(super) const MAX_APART_NANOS: i64 = 120_000_000_000;
