//! The course of signals over time: sums per rank and stretch, which is what a picture of a whole cluster is made of.
//!
//! All reports of one block come into the same stretch, whatever the senders' clocks say: that of the mean of their times.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_proto::metric;

use crate::ids::{ClusterId, CommId, JobId, MetricName, Op, RoleId};
use crate::model::event::{Event, Origin, Reading, SeqRange, Source};
use crate::store::is_idle_wait;
use crate::units::{Nanos, Window};

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

    /// The piece that begins last before so many nanoseconds after the beginning; nothing when that is not looked at.
    const fn place_of(self, after_nanos: i64) -> Option<i64> {
        if after_nanos % self.length_nanos < self.looked_at_nanos {
            Some(after_nanos / self.length_nanos)
        } else {
            None
        }
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

/// Longest time between reports of one block, nanoseconds. Those that are further apart are of runs of a job that count anew.
pub(super) const MAX_APART_NANOS: i64 = 120_000_000_000;

/// What reports of the same block share: the job, the kind of block, who is compared, and the operations.
type BlockKey = (Option<JobId>, bool, u64, Option<SeqRange>);

fn block_of(event: &Event) -> Option<BlockKey> {
    let block = event.block.as_ref()?;
    let role = block.role.map_or_else(|| block.comm.value(), RoleId::value);
    let is_wait = event.metric.as_str() == metric::WAIT;
    Some((event.origin.job.clone(), is_wait, role, block.seqs))
}

/// When blocks were, nanoseconds after the beginning of the window.
struct Times(BTreeMap<BlockKey, Vec<i64>>);

impl Times {
    fn after(&self, event: &Event, from: Nanos) -> i64 {
        let own = event.timestamp.value() - from.value();
        let all = block_of(event).and_then(|key| self.0.get(&key));
        let ends = all.and_then(|all| all.iter().min().zip(all.iter().max()));
        match (all, ends) {
            (Some(all), Some((first, last))) if last - first <= MAX_APART_NANOS => {
                all.iter().sum::<i64>() / i64::try_from(all.len()).unwrap_or(1)
            }
            _ => own,
        }
    }
}

/// The sums of these events.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one window stay far below 2^53"
)]
pub(super) fn sums<'e>(
    query: &'e CourseQuery,
    events: impl Iterator<Item = &'e Event>,
) -> Vec<CoursePoint> {
    let events: Vec<&Event> = events.filter(|event| is_meant(query, event)).collect();
    let from = query.stretches.window().from();
    let mut times = Times(BTreeMap::new());
    for event in &events {
        if let Some(key) = block_of(event) {
            let after = event.timestamp.value() - from.value();
            times.0.entry(key).or_default().push(after);
        }
    }
    let mut sums: BTreeMap<Key, (f64, f64, f64)> = BTreeMap::new();
    for event in events {
        let place = query.stretches.place_of(times.after(event, from));
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
    query.stretches.window().contains(event.timestamp)
        && event.origin.cluster == query.cluster
        && event.origin.rank.is_some()
        && query.metrics.contains(&event.metric)
        && !is_idle_wait(event)
        && matches!(event.reading, Reading::Histogram(_))
        && (event.block.as_ref()).is_some_and(|block| block.iterations.is_some())
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
