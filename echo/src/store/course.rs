//! The course of signals over time: sums per rank and stretch, which is what a picture of a whole cluster is made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{ClusterId, CommId, MetricName, Op, RoleId};
use crate::model::event::{Event, Origin, Reading, Source};
use crate::store::is_idle_wait;
use crate::units::Window;

/// Which sums are meant by [`crate::store::EventStore::course`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CourseQuery {
    /// Cluster.
    pub cluster: ClusterId,
    /// Histogram signals of blocks.
    pub metrics: Vec<MetricName>,
    /// Event time on the senders' clocks, cut up into stretches.
    pub stretches: Stretches,
}

/// A window in pieces of equal length, the last of which may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretches {
    window: Window,
    length_nanos: i64,
    looked_at_nanos: i64,
}

impl Stretches {
    /// Pieces of that length, of which only the beginning is looked at; nothing when one of them is empty.
    pub fn new(window: Window, length_nanos: i64, looked_at_nanos: i64) -> Option<Self> {
        let looked_at_nanos = looked_at_nanos.min(length_nanos);
        (looked_at_nanos > 0).then_some(Self {
            window,
            length_nanos,
            looked_at_nanos,
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
    pub const fn looked_at_nanos(self) -> i64 {
        self.looked_at_nanos
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

    /// The piece that an event lies in; nothing when it is not looked at.
    fn place_of(self, event: &Event) -> Option<i64> {
        let after = event.timestamp.value() - self.window.from().value();
        let is_seen = self.window.contains(event.timestamp)
            && after % self.length_nanos < self.looked_at_nanos;
        is_seen.then_some(after / self.length_nanos)
    }
}

/// What one rank reported of one signal and communicator in one stretch.
#[derive(Debug, Clone, PartialEq)]
pub struct CoursePoint {
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
    pub place: i64,
    /// Number of samples.
    pub count: f64,
    /// Sum of the samples, in the unit of the signal.
    pub sum: f64,
    /// Iterations of the blocks that they came with.
    pub iterations: f64,
}

type Key = (
    Arc<Origin>,
    MetricName,
    Source,
    (Option<RoleId>, CommId, Option<Op>),
    i64,
);

/// The sums of these events.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one window stay far below 2^53"
)]
pub(super) fn sums<'e>(
    query: &'e CourseQuery,
    events: impl Iterator<Item = &'e Event>,
) -> Vec<CoursePoint> {
    let mut sums: BTreeMap<Key, (f64, f64, f64)> = BTreeMap::new();
    for event in events.filter(|event| is_meant(query, event)) {
        let place = query.stretches.place_of(event);
        let (Some(place), Some(block), Reading::Histogram(summary)) =
            (place, event.block.as_ref(), event.reading)
        else {
            continue;
        };
        let Some(iterations) = block.iterations else {
            continue;
        };
        let cohort = (block.role, block.comm, block.op.clone());
        let origin = Arc::clone(&event.origin);
        let key = (origin, event.metric.clone(), block.source, cohort, place);
        let sum = sums.entry(key).or_default();
        sum.0 += summary.count as f64;
        sum.1 += summary.sum;
        sum.2 += iterations;
    }
    sums.into_iter().map(point).collect()
}

fn is_meant(query: &CourseQuery, event: &Event) -> bool {
    event.origin.cluster == query.cluster
        && event.origin.rank.is_some()
        && query.metrics.contains(&event.metric)
        && !is_idle_wait(event)
}

fn point((key, (count, sum, iterations)): (Key, (f64, f64, f64))) -> CoursePoint {
    let (origin, metric, source, (role, comm, op), place) = key;
    CoursePoint {
        origin,
        metric,
        source,
        role,
        comm,
        op,
        place,
        count,
        sum,
        iterations,
    }
}
