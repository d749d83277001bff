//! Lags from sums: pure.
//!
//! Where most ranks of a job are measured by their GPUs, ranks are compared in each of their communicators, and the one
//! counts in which a rank is latest; elsewhere by the time blocked in synchronisation, among the ranks of their role. A
//! rank that was not blocked at all in a stretch of which it reported blocks waited for nothing there.

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
    /// Job; nothing when not known.
    pub job: Option<String>,
    /// Rank within the job.
    pub rank: u32,
    /// Node that it reported from last.
    pub node: String,
    /// What it waited less than the median of its peers, milliseconds per iteration, stretch by stretch; negative when it
    /// waited more, nothing where it cannot be compared.
    pub lags_ms: Vec<Option<f64>>,
}

impl RankLags {
    /// What identifies it.
    pub fn key(&self) -> RankKey {
        (self.job.clone(), self.rank)
    }

    /// Mean of what is known, milliseconds.
    pub fn mean_ms(&self) -> Option<f64> {
        mean(&self.known().collect::<Vec<f64>>())
    }

    /// Largest lag, milliseconds, and its place.
    pub fn most_ms(&self) -> Option<(usize, f64)> {
        let known = self.lags_ms.iter().enumerate();
        let known = known.filter_map(|(place, lag)| Some((place, (*lag)?)));
        known.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How much it stands out: squares of its lags, added up, so that a short stall counts beside a lasting lag.
    pub(super) fn weight(&self) -> f64 {
        self.known().map(|lag| lag.max(0.0).powi(2)).sum()
    }

    fn known(&self) -> impl Iterator<Item = f64> {
        self.lags_ms.iter().flatten().copied()
    }
}

/// The lag that half of all readings stay below, whatever its sign.
pub(super) fn usual_ms(ranks: &[RankLags]) -> Option<f64> {
    let all: Vec<f64> = ranks.iter().flat_map(RankLags::known).collect();
    median(&all.iter().map(|lag| lag.abs()).collect::<Vec<f64>>())
}

/// Ranks that are compared with one another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cohort {
    /// In the same operations.
    Operations(CommId, Option<Op>),
    /// By their role.
    Role(RoleId),
}

/// Waits per iteration of each rank of a cohort in a stretch.
type Waits = BTreeMap<(Cohort, i64), Vec<(u32, f64)>>;

/// Lags of all ranks that can be compared, in the order of their jobs and numbers.
pub(super) fn of(points: &[TimeseriesPoint], n_stretches: usize) -> Vec<RankLags> {
    let mut jobs: BTreeMap<Option<&JobId>, Vec<&TimeseriesPoint>> = BTreeMap::new();
    for point in points {
        jobs.entry(point.origin.job.as_ref())
            .or_default()
            .push(point);
    }
    let lags = jobs
        .into_iter()
        .map(|(job, points)| of_job(job, &points, n_stretches));
    lags.flatten().collect()
}

fn of_job(job: Option<&JobId>, points: &[&TimeseriesPoint], n_stretches: usize) -> Vec<RankLags> {
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
    for ((_, place), waits) in suited(points) {
        let values: Vec<f64> = waits.iter().map(|(_, wait)| *wait).collect();
        // Whoever is late waits least, so the upper median stays with the healthy.
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
                lags_ms: vec![None; n_stretches],
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

/// Waits by the signal that suits the job.
fn suited(points: &[&TimeseriesPoint]) -> Waits {
    let ranks_of = |is_meant: &dyn Fn(&TimeseriesPoint) -> bool| -> BTreeSet<u32> {
        let meant = points.iter().filter(|point| is_meant(point));
        meant.filter_map(|point| rank_of(&point.origin)).collect()
    };
    let most = |is_meant: &dyn Fn(&TimeseriesPoint) -> bool| {
        ranks_of(is_meant).len() * 2 > ranks_of(&|_| true).len()
    };
    if most(&|point| is(point, metric::WAIT)) {
        return device_waits(points);
    }
    let by_gpu = most(&|point| is(point, metric::BLOCKED) && point.source == Source::Device);
    let source = if by_gpu { Source::Device } else { Source::Host };
    blocked(points, source)
}

fn is(point: &TimeseriesPoint, name: &str) -> bool {
    point.metric.as_str() == name
}

/// What GPUs spent inside collectives. Records get lost: a rank that misses some has not spent less time inside.
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

/// Time blocked in synchronisation, over the iterations of all blocks that a rank reported.
fn blocked(points: &[&TimeseriesPoint], source: Source) -> Waits {
    let mut sums: HashMap<(RoleId, u32, i64), Blocked> = HashMap::new();
    let mut ever: BTreeSet<u32> = BTreeSet::new();
    for point in points {
        let is_blocked = is(point, metric::BLOCKED) && point.source == source;
        // Each block has one, whether the rank was blocked or not.
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
        // A rank that is never blocked works in another way and cannot be compared.
        if iterations > 0.0 && ever.contains(&rank) {
            let cohort = waits.entry((Cohort::Role(role), place)).or_default();
            cohort.push((rank, sum.ms / iterations));
        }
    }
    waits
}

/// Time that a rank was blocked in a stretch.
#[derive(Debug, Default)]
struct Blocked {
    ms: f64,
    /// Iterations of the blocks in which it was blocked.
    iterations: f64,
    /// Iterations of all blocks that it reported.
    all_iterations: f64,
}
