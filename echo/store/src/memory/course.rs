//! The course of signals over time, from the events themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use echo_core::ids::{CommId, JobId, MetricName, Op, RoleId};
use echo_core::model::event::{Event, Origin, Reading, SeqRange, Source};
use echo_core::units::Nanos;
use fleet_proto::metric;

use crate::course::{CoursePoint, CourseQuery, MAX_APART_NANOS, Stretches};
use crate::is_idle_wait;

type Key = (
    Arc<Origin>,
    MetricName,
    Source,
    (Option<RoleId>, CommId, Option<Op>),
    i64,
);

/// What reports of the same block share: the job, the kind of block, who is compared, and the operations.
type BlockKey = (Option<JobId>, bool, u64, Option<SeqRange>);

fn block_of(event: &Event) -> Option<BlockKey> {
    let block = event.block.as_ref()?;
    let role = block.role.map_or_else(|| block.comm.value(), RoleId::value);
    let is_wait = event.metric.as_str() == metric::WAIT;
    Some((event.origin.job.clone(), is_wait, role, block.seqs))
}

/// The piece that begins last before so many nanoseconds after the beginning; nothing when that is not looked at.
const fn place_of(stretches: Stretches, after_nanos: i64) -> Option<i64> {
    if after_nanos % stretches.length_nanos() < stretches.looked_at_nanos() {
        Some(after_nanos / stretches.length_nanos())
    } else {
        None
    }
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
        let place = place_of(query.stretches, times.after(event, from));
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
