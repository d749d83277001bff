//! Lag of ranks over time, for a heat map of a whole cluster. Its cost is bounded for any number of
//! ranks: the longer the window and the more ranks there are, the coarser the map.
//!
//! The lag of a rank is that of the detector: see [`echo_analysis::lag`]. The map names no culprit;
//! [`super::find_outlier_nodes`] does.

use std::collections::BTreeMap;

use echo_analysis::settings::Settings;
use echo_core::ids::ClusterId;
use echo_core::model::event::Origin;
use echo_core::units::{Nanos, Window};
use echo_store::timeseries::{TimeBuckets, TimeseriesPoint, TimeseriesQuery};
use fleet_proto::metric;

use crate::ToolError;
use crate::names::metrics;
use crate::scope::Scope;
use crate::time::AnswerWindow;

mod bucket_blocks;
mod iterations;
pub mod lags;
mod missing;
mod report_gaps;

use iterations::iteration_times;
use lags::RankLags;
use missing::{absences, mark, missing_ranks};
use report_gaps::buckets_per_report;

/// Maximum number of ranks in a map.
pub const MAX_ROWS: usize = 64;

/// Maximum number of time buckets, and minimum however many ranks there are.
const MAX_BUCKETS: usize = 60;
const MIN_BUCKETS: usize = 24;

/// Approximate maximum number of cells (ranks times buckets): each takes some microseconds.
const MAX_CELLS: usize = 100_000;

/// Minimum length of a bucket. Where agents report less often, buckets are as long as their reports.
const MIN_BUCKET_NANOS: i64 = 5_000_000_000;

/// Approximate maximum of rank-seconds read, of which a core takes two million in a second, and minimum
/// time read per bucket.
const MAX_RANK_SECONDS: f64 = 3e6;
const MIN_SAMPLED_NANOS: i64 = 15_000_000_000;

/// Job and number of a rank.
pub type RankKey = (Option<String>, u32);

/// Lag of ranks over time.
#[derive(Debug, Clone, PartialEq)]
pub struct LagMap {
    /// Part of the requested window that has events.
    pub window: AnswerWindow,
    /// Length of a bucket, seconds.
    pub bucket_s: f64,
    /// Time read of each bucket, seconds.
    pub sampled_s: f64,
    /// Ranks ordered by job and number: the pinned ones, and the latest of the others.
    pub ranks: Vec<RankLags>,
    /// Number of comparable ranks that are omitted.
    pub n_omitted: usize,
    /// Largest lag of the omitted ranks, milliseconds; `None` when none is omitted.
    pub omitted_peak_ms: Option<f64>,
    /// Recent iteration time of each job, milliseconds; jobs without a known one are absent.
    pub iteration_ms: BTreeMap<Option<String>, f64>,
    /// Smallest lag for which a rank is named, as a share of the iteration time.
    pub effect_gate: f64,
}

impl LagMap {
    /// Loads the map from the store. `pinned` ranks are always listed, the most important first.
    pub async fn load(scope: &Scope<'_>, pinned: &[RankKey]) -> Result<Self, ToolError> {
        let cluster = scope.require_cluster()?;
        let presence = scope.presence().await?;
        let window = fitted(scope.window, presence.span());
        let Some(buckets) = buckets(window, presence.ranks().count().max(1)) else {
            return Err(ToolError::invalid("window", "is too short"));
        };
        let mut points = scope
            .context
            .store
            .timeseries(query(cluster.clone(), buckets)?)
            .await?;
        let sampled_nanos = buckets.sampled_nanos();
        let merged = buckets_per_report(&points);
        let buckets = merge(&mut points, buckets, merged);
        let absences = absences(scope, window).await?;
        let mut all = lags::rank_lags(&points, buckets.n(), &missing_ranks(&absences));
        mark(&mut all, &absences, buckets);
        let iteration_ms = iteration_times(scope, &all, buckets).await?;
        let (ranks, omitted) = select_ranks(all, pinned);
        let peaks = omitted.iter().filter_map(RankLags::peak_ms);
        Ok(Self {
            window: window.into(),
            bucket_s: seconds(buckets.length_nanos()),
            sampled_s: seconds(sampled_nanos.saturating_mul(merged)),
            n_omitted: omitted.len(),
            omitted_peak_ms: peaks.map(|(_, lag_ms)| lag_ms).max_by(f64::total_cmp),
            ranks,
            iteration_ms,
            effect_gate: Settings::default().effect_gate,
        })
    }
}

/// Restricts a window to the events in it.
fn fitted(window: Window, span: Option<(Nanos, Nanos)>) -> Window {
    let part = span.and_then(|(first, last)| {
        // The last event is part of the window.
        Window::new(first.max(window.from()), last.offset(1).min(window.to()))
    });
    part.unwrap_or(window)
}

fn query(cluster: ClusterId, buckets: TimeBuckets) -> Result<TimeseriesQuery, ToolError> {
    Ok(TimeseriesQuery {
        cluster,
        metrics: metrics(&[
            metric::WAIT,
            metric::HOST_GAP,
            metric::BLOCKED,
            metric::ARRIVAL,
        ])?,
        buckets,
    })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "lengths of windows in seconds, and numbers of ranks, are small"
)]
fn buckets(window: Window, n_ranks: usize) -> Option<TimeBuckets> {
    let n = (MAX_CELLS / n_ranks).clamp(MIN_BUCKETS, MAX_BUCKETS);
    let span = window.to().value().saturating_sub(window.from().value());
    let length = (span / i64::try_from(n).ok()?).max(MIN_BUCKET_NANOS);
    let share = MAX_RANK_SECONDS / (n_ranks as f64 * seconds(span));
    let sampled = (length as f64 * share.min(1.0)) as i64;
    TimeBuckets::new(window, length + 1, sampled.max(MIN_SAMPLED_NANOS))
}

/// Merges each `n` buckets into one.
fn merge(points: &mut [TimeseriesPoint], buckets: TimeBuckets, n: i64) -> TimeBuckets {
    let length_nanos = buckets.length_nanos().saturating_mul(n);
    let merged = TimeBuckets::new(buckets.window(), length_nanos, length_nanos);
    let Some(merged) = merged.filter(|_| n > 1) else {
        return buckets;
    };
    for point in points {
        point.bucket /= n;
    }
    merged
}

#[expect(
    clippy::cast_precision_loss,
    reason = "windows are shorter than 2^53 nanoseconds, or their last digits do not matter"
)]
fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

/// Selects the pinned ranks, then the latest of the others, up to [`MAX_ROWS`]. Returns them and
/// the omitted ranks.
fn select_ranks(mut all: Vec<RankLags>, pinned: &[RankKey]) -> (Vec<RankLags>, Vec<RankLags>) {
    // A rank that is pinned twice keeps the first of its two positions.
    let positions = pinned.iter().enumerate().rev();
    let positions: BTreeMap<&RankKey, usize> =
        positions.map(|(position, key)| (key, position)).collect();
    let position = |one: &RankLags| positions.get(&one.key()).copied().unwrap_or(usize::MAX);
    all.sort_by(|a, b| {
        let latest_first = b.score().total_cmp(&a.score());
        position(a).cmp(&position(b)).then(latest_first)
    });
    let omitted = all.split_off(all.len().min(MAX_ROWS));
    all.sort_by_key(RankLags::key);
    (all, omitted)
}

/// Rank of an origin.
fn rank_of(origin: &Origin) -> Option<u32> {
    origin.rank.map(|rank| rank.rank().value())
}

#[cfg(test)]
mod tests;
