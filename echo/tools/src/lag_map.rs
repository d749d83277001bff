//! How late ranks were over time, for a picture of a whole cluster. It has bounds for any number of ranks: the longer the
//! window and the more ranks there are, the coarser it gets.
//!
//! The lag of a rank is what it waited less than the median of its peers: whoever comes last waits least. It names nobody;
//! [`super::find_outlier_nodes`] does.

use std::collections::BTreeMap;

use echo_core::ids::ClusterId;
use echo_core::model::event::Origin;
use echo_core::units::Window;
use echo_store::timeseries::{TimeBuckets, TimeseriesQuery};
use fleet_proto::metric;

use crate::ToolError;
use crate::metric_names::metrics;
use crate::scope::Scope;
use crate::time::AnswerWindow;

pub mod lags;

use lags::RankLags;

/// Most ranks of a map.
pub const MAX_ROWS: usize = 64;

/// Most stretches, and fewest however many ranks there are.
const MAX_STRETCHES: usize = 60;
const MIN_STRETCHES: usize = 24;

/// Ranks times stretches that are added up, about.
const MAX_SUMS: usize = 300_000;

/// Shortest stretch: agents report once in one to five seconds.
const MIN_LENGTH_NANOS: i64 = 5_000_000_000;

/// Seconds of single ranks that are looked at, about, and the least of each stretch.
const MAX_RANK_SECONDS: f64 = 40e6;
const MIN_LOOKED_AT_NANOS: i64 = 30_000_000_000;

/// Ranks by their job and number.
pub type RankKey = (Option<String>, u32);

/// How late ranks were over time.
#[derive(Debug, Clone, PartialEq)]
pub struct LagMap {
    /// Window of event time.
    pub window: AnswerWindow,
    /// Length of a stretch, seconds.
    pub stretch_s: f64,
    /// How much of each stretch was looked at, seconds.
    pub looked_at_s: f64,
    /// The ranks, in the order of their jobs and numbers; those that were asked for, then those that were latest.
    pub ranks: Vec<RankLags>,
    /// Ranks that could be compared and are not listed.
    pub left_out: usize,
    /// The lag that half of all readings stay below, milliseconds, whatever its sign; nothing without readings.
    pub usual_ms: Option<f64>,
}

impl LagMap {
    /// Asks the store. `named` are the ranks to be listed in any case, the most important first.
    pub async fn of(scope: &Scope<'_>, named: &[RankKey]) -> Result<Self, ToolError> {
        let (cluster, window) = (scope.one_cluster()?, scope.window);
        let n_ranks = scope.presence().await?.ranks().count().max(1);
        let Some(stretches) = stretches(window, n_ranks) else {
            return Err(ToolError::invalid("window", "is too short"));
        };
        let points = scope
            .context
            .store
            .timeseries(query(cluster.clone(), stretches)?)
            .await?;
        let all = lags::of(&points, stretches.n());
        let usual_ms = lags::usual_ms(&all);
        let n_all = all.len();
        let ranks = chosen(all, named);
        Ok(Self {
            window: window.into(),
            stretch_s: seconds(stretches.length_nanos()),
            looked_at_s: seconds(stretches.sampled_nanos()),
            left_out: n_all - ranks.len(),
            ranks,
            usual_ms,
        })
    }
}

fn query(cluster: ClusterId, stretches: TimeBuckets) -> Result<TimeseriesQuery, ToolError> {
    Ok(TimeseriesQuery {
        cluster,
        metrics: metrics(&[metric::WAIT, metric::BLOCKED, metric::ARRIVAL])?,
        stretches,
    })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "lengths of windows in seconds, and numbers of ranks, are small"
)]
fn stretches(window: Window, n_ranks: usize) -> Option<TimeBuckets> {
    let n = (MAX_SUMS / n_ranks).clamp(MIN_STRETCHES, MAX_STRETCHES);
    let span = window.to().value().saturating_sub(window.from().value());
    let length = (span / i64::try_from(n).ok()?).max(MIN_LENGTH_NANOS);
    let share = MAX_RANK_SECONDS / (n_ranks as f64 * seconds(span));
    let looked_at = (length as f64 * share.min(1.0)) as i64;
    TimeBuckets::new(window, length + 1, looked_at.max(MIN_LOOKED_AT_NANOS))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "windows are shorter than 2^53 nanoseconds, or their last digits do not matter"
)]
fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

/// The ranks that are named, and of the others the latest, as far as there is room.
fn chosen(mut all: Vec<RankLags>, named: &[RankKey]) -> Vec<RankLags> {
    // Who is named twice has the first of the two places.
    let places = named.iter().enumerate().rev();
    let places: BTreeMap<&RankKey, usize> = places.map(|(place, key)| (key, place)).collect();
    let place = |one: &RankLags| places.get(&one.key()).copied().unwrap_or(usize::MAX);
    all.sort_by(|a, b| {
        let latest_first = b.weight().total_cmp(&a.weight());
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
