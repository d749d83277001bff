//! How late ranks were over time, for a picture of a whole cluster. It has bounds for any number of ranks: the longer the
//! window and the more ranks there are, the coarser it gets.
//!
//! The lag of a rank is what it waited less than the median of its peers: whoever comes last waits least. It names nobody;
//! [`super::find_outlier_nodes`] does.

use std::collections::BTreeMap;

use echo_core::ids::ClusterId;
use echo_core::model::event::Origin;
use echo_core::units::Window;
use echo_store::timeseries::{CourseQuery, Stretches};
use fleet_proto::metric;

use crate::ToolError;
use crate::metric_names::metrics;
use crate::scope::Scope;
use crate::time::AnswerWindow;

pub mod lags;

use lags::RankLags;

/// Most ranks of a map.
pub const MAX_ROWS: usize = 64;

/// Most buckets, and fewest however many ranks there are.
const MAX_BUCKETS: usize = 60;
const MIN_BUCKETS: usize = 24;

/// Ranks times buckets that are added up, about.
const MAX_CELLS: usize = 300_000;

/// Shortest stretch: agents report once in one to five seconds.
const MIN_BUCKET_NANOS: i64 = 5_000_000_000;

/// Seconds of single ranks that are looked at, about, and the least of each stretch.
const MAX_RANK_SECONDS: f64 = 40e6;
const MIN_SAMPLED_NANOS: i64 = 30_000_000_000;

/// Ranks by their job and number.
pub type RankKey = (Option<String>, u32);

/// How late ranks were over time.
#[derive(Debug, Clone, PartialEq)]
pub struct LagMap {
    /// Window of event time.
    pub window: AnswerWindow,
    /// Length of a stretch, seconds.
    pub bucket_s: f64,
    /// How much of each stretch was looked at, seconds.
    pub sampled_s: f64,
    /// The ranks, in the order of their jobs and numbers; those that were asked for, then those that were latest.
    pub ranks: Vec<RankLags>,
    /// Ranks that could be compared and are not listed.
    pub n_omitted: usize,
    /// The lag that half of all readings stay below, milliseconds, whatever its sign; nothing without readings.
    pub median_abs_ms: Option<f64>,
}

impl LagMap {
    /// Asks the store. `pinned` are the ranks to be listed in any case, the most important first.
    pub async fn load(scope: &Scope<'_>, pinned: &[RankKey]) -> Result<Self, ToolError> {
        let (cluster, window) = (scope.require_cluster()?, scope.window);
        let n_ranks = scope.presence().await?.ranks().count().max(1);
        let Some(buckets) = buckets(window, n_ranks) else {
            return Err(ToolError::invalid("window", "is too short"));
        };
        let points = scope
            .context
            .store
            .course(query(cluster.clone(), buckets)?)
            .await?;
        let all = lags::rank_lags(&points, buckets.n());
        let median_abs_ms = lags::median_abs_ms(&all);
        let n_all = all.len();
        let ranks = select_ranks(all, pinned);
        Ok(Self {
            window: window.into(),
            bucket_s: seconds(buckets.length_nanos()),
            sampled_s: seconds(buckets.looked_at_nanos()),
            n_omitted: n_all - ranks.len(),
            ranks,
            median_abs_ms,
        })
    }
}

fn query(cluster: ClusterId, buckets: Stretches) -> Result<CourseQuery, ToolError> {
    Ok(CourseQuery {
        cluster,
        metrics: metrics(&[metric::WAIT, metric::BLOCKED, metric::ARRIVAL])?,
        stretches: buckets,
    })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "lengths of windows in seconds, and numbers of ranks, are small"
)]
fn buckets(window: Window, n_ranks: usize) -> Option<Stretches> {
    let n = (MAX_CELLS / n_ranks).clamp(MIN_BUCKETS, MAX_BUCKETS);
    let span = window.to().value().saturating_sub(window.from().value());
    let length = (span / i64::try_from(n).ok()?).max(MIN_BUCKET_NANOS);
    let share = MAX_RANK_SECONDS / (n_ranks as f64 * seconds(span));
    let sampled = (length as f64 * share.min(1.0)) as i64;
    Stretches::new(window, length + 1, sampled.max(MIN_SAMPLED_NANOS))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "windows are shorter than 2^53 nanoseconds, or their last digits do not matter"
)]
fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

/// The ranks that are pinned, and of the others the latest, as far as there is room.
fn select_ranks(mut all: Vec<RankLags>, pinned: &[RankKey]) -> Vec<RankLags> {
    // Who is pinned twice has the first of the two places.
    let places = pinned.iter().enumerate().rev();
    let places: BTreeMap<&RankKey, usize> = places.map(|(place, key)| (key, place)).collect();
    let place = |one: &RankLags| places.get(&one.key()).copied().unwrap_or(usize::MAX);
    all.sort_by(|a, b| {
        let latest_first = b.lateness().total_cmp(&a.lateness());
        place(a).cmp(&place(b)).then(latest_first)
    });
    all.truncate(MAX_ROWS);
    all.sort_by_key(RankLags::key);
    all
}

/// The rank of an origin.
fn rank_of(origin: &Origin) -> Option<u32> {
    origin.rank.map(|rank| rank.rank().value())
}

#[cfg(test)]
mod tests;
