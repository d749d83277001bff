//! Lags computed from summed waits; no I/O.
//!
//! If most ranks of a job are measured on their GPUs, ranks are compared per communicator, and the
//! largest lag of a rank counts. Otherwise ranks are compared by the time blocked in
//! synchronisation, among the ranks of their role. A rank that was never blocked in a bucket from
//! which it reported blocks has a wait of zero there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use echo_core::ids::{CommId, JobId, Op, RoleId};
use echo_core::model::event::Source;
use echo_core::stats::{mean, median, upper_median};
use echo_store::timeseries::TimeseriesPoint;
use fleet_proto::metric;

use super::{RankKey, rank_of};

/// Lags of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct RankLags {
    /// Job; `None` when unknown.
    pub job: Option<String>,
    /// Rank within the job.
    pub rank: u32,
    /// Node from which it last reported.
    pub node: String,
    /// Lag per bucket, milliseconds per iteration: the median wait of its peers minus its own.
    /// Negative when it waited more; `None` when it cannot be compared.
    pub lags_ms: Vec<Option<f64>>,
}

impl RankLags {
    /// Key of the rank.
    pub fn key(&self) -> RankKey {
        (self.job.clone(), self.rank)
    }

    /// Mean of the known lags, milliseconds.
    pub fn mean_ms(&self) -> Option<f64> {
        mean(&self.known().collect::<Vec<f64>>())
    }

    /// Bucket and value of the largest lag, milliseconds.
    pub fn peak_ms(&self) -> Option<(usize, f64)> {
        let known = self.lags_ms.iter().enumerate();
        let known = known.filter_map(|(place, lag)| Some((place, (*lag)?)));
        known.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Ranking score: sum of the squared positive lags, so that a short stall counts beside a
    /// lasting lag.
    pub(super) fn score(&self) -> f64 {
        self.known().map(|lag| lag.max(0.0).powi(2)).sum()
    }

    fn known(&self) -> impl Iterator<Item = f64> {
        self.lags_ms.iter().flatten().copied()
    }
}

/// Ranks that are compared with one another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cohort {
    /// Same operations of a communicator.
    Operations(CommId, Option<Op>),
    /// Same role.
    Role(RoleId),
}

/// Waits per iteration of each rank, by cohort and bucket.
type Waits = BTreeMap<(Cohort, i64), Vec<(u32, f64)>>;

/// Computes the lags of all comparable ranks, ordered by job and number.
pub(super) fn rank_lags(points: &[TimeseriesPoint], n_buckets: usize) -> Vec<RankLags> {
    let mut jobs: BTreeMap<Option<&JobId>, Vec<&TimeseriesPoint>> = BTreeMap::new();
    for point in points {
        jobs.entry(point.origin.job.as_ref())
            .or_default()
            .push(point);
    }
    let lags = jobs
        .into_iter()
        .map(|(job, points)| lags_of_job(job, &points, n_buckets));
    lags.flatten().collect()
}

fn lags_of_job(
    job: Option<&JobId>,
    points: &[&TimeseriesPoint],
    n_buckets: usize,
) -> Vec<RankLags> {
    let mut ranks: BTreeMap<u32, RankLags> = BTreeMap::new();
    let mut latest: BTreeMap<u32, (i64, &TimeseriesPoint)> = BTreeMap::new();
    for point in points {
        if let Some(rank) = rank_of(&point.origin) {
            let known = latest.entry(rank).or_insert((point.bucket, point));
            if point.bucket >= known.0 {
                *known = (point.bucket, point);
            }
        }
    }
    for ((_, place), waits) in waits_by_signal(points) {
        let values: Vec<f64> = waits.iter().map(|(_, wait)| *wait).collect();
        // A late rank waits least, so the upper median is that of a healthy rank.
        let Some(center) = upper_median(&values).filter(|_| values.len() > 1) else {
            continue;
        };
        for (rank, wait) in waits {
            let Some((_, seen)) = latest.get(&rank) else {
                continue;
            };
            let lags = ranks.entry(rank).or_insert_with(|| RankLags {
                job: job.map(ToString::to_string),
                rank,
                node: seen.origin.node.to_string(),
                lags_ms: vec![None; n_buckets],
            });
            let cell = usize::try_from(place).ok();
            if let Some(cell) = cell.and_then(|place| lags.lags_ms.get_mut(place)) {
                let lag = center - wait;
                *cell = Some(cell.map_or(lag, |known: f64| known.max(lag)));
            }
        }
    }
    ranks.into_values().collect()
}

/// Computes waits from the signal selected for the job.
fn waits_by_signal(points: &[&TimeseriesPoint]) -> Waits {
    let ranks_of = |matches: &dyn Fn(&TimeseriesPoint) -> bool| -> BTreeSet<u32> {
        let matching = points.iter().filter(|point| matches(point));
        matching
            .filter_map(|point| rank_of(&point.origin))
            .collect()
    };
    let is_majority = |matches: &dyn Fn(&TimeseriesPoint) -> bool| {
        ranks_of(matches).len() * 2 > ranks_of(&|_| true).len()
    };
    if is_majority(&|point| is(point, metric::WAIT)) {
        return device_waits(points);
    }
    let by_gpu = is_majority(&|point| is(point, metric::BLOCKED) && point.source == Source::Device);
    let source = if by_gpu { Source::Device } else { Source::Host };
    blocked(points, source)
}

fn is(point: &TimeseriesPoint, name: &str) -> bool {
    point.metric.as_str() == name
}

/// Time that GPUs spent inside collectives. Records may be lost: a rank with missing records has
/// not spent less time.
fn device_waits(points: &[&TimeseriesPoint]) -> Waits {
    let mut found: BTreeMap<(Cohort, i64), Vec<(u32, &TimeseriesPoint)>> = BTreeMap::new();
    for point in points {
        let is_measured = is(point, metric::WAIT) && point.count > 0.0 && point.iterations > 0.0;
        if let Some(rank) = rank_of(&point.origin).filter(|_| is_measured) {
            let cohort = Cohort::Operations(point.comm, point.op.clone());
            let waits = found.entry((cohort, point.bucket)).or_default();
            waits.push((rank, point));
        }
    }
    let per_iteration = |(key, of_ranks): (_, Vec<(u32, &TimeseriesPoint)>)| {
        let rates: Vec<f64> = of_ranks
            .iter()
            .map(|(_, point)| point.count / point.iterations)
            .collect();
        let rate = median(&rates).unwrap_or(1.0);
        let waits = of_ranks
            .into_iter()
            .map(|(rank, point)| (rank, point.sum / point.count * rate));
        (key, waits.collect())
    };
    found.into_iter().map(per_iteration).collect()
}

/// Time blocked in synchronisation, per iteration of all blocks that a rank reported.
fn blocked(points: &[&TimeseriesPoint], source: Source) -> Waits {
    let mut sums: HashMap<(RoleId, u32, i64), Blocked> = HashMap::new();
    let mut ever: BTreeSet<u32> = BTreeSet::new();
    for point in points {
        let is_blocked = is(point, metric::BLOCKED) && point.source == source;
        // Every block has an arrival, even when the rank was not blocked.
        let is_block = is(point, metric::ARRIVAL);
        let place = rank_of(&point.origin).zip(point.role);
        let Some((rank, role)) = place.filter(|_| is_blocked || is_block) else {
            continue;
        };
        let sum = sums.entry((role, rank, point.bucket)).or_default();
        if is_blocked {
            sum.ms += point.sum;
            sum.iterations += point.iterations;
            ever.insert(rank);
        } else {
            sum.all_iterations += point.iterations;
        }
    }
    let mut waits = Waits::new();
    for ((role, rank, place), sum) in sums {
        let iterations = sum.all_iterations.max(sum.iterations);
        // A rank that is never blocked works differently and cannot be compared.
        if iterations > 0.0 && ever.contains(&rank) {
            let cohort = waits.entry((Cohort::Role(role), place)).or_default();
            cohort.push((rank, sum.ms / iterations));
        }
    }
    waits
}

/// Time that a rank was blocked in a bucket.
#[derive(Debug, Default)]
struct Blocked {
    ms: f64,
    /// Iterations of the blocks in which it was blocked.
    iterations: f64,
    /// Iterations of all blocks that it reported.
    all_iterations: f64,
}
