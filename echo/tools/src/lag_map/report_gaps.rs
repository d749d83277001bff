//! How often ranks report, which limits how short the steps of a map can be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use echo_core::model::event::Origin;
use echo_core::stats::{mean, median};
use echo_store::timeseries::TimeseriesPoint;
use fleet_proto::metric;

/// Maximum number of ranks whose reports are looked at: those of a cluster report equally often.
const MAX_RANKS: usize = 64;

/// Minimum number of gaps between the reports of a rank from which their usual length is known.
const MIN_GAPS: usize = 2;

/// Multiple of the median gap above which a rank was silent rather than between two reports.
const SILENCE: f64 = 2.0;

/// Mean gap up to which only single buckets are empty, because reports are not exactly periodic.
const NEARLY_ALL: f64 = 1.05;

/// Share by which a merged bucket is longer than the mean gap, so that each has a report even if that is late.
const MARGIN: f64 = 1.2;

/// Returns the number of buckets to merge into one so that a rank that reports has data in all of them.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "maps have few buckets"
)]
pub(super) fn buckets_per_report(points: &[TimeseriesPoint]) -> i64 {
    let mut reports: BTreeMap<*const Origin, BTreeSet<i64>> = BTreeMap::new();
    // GPUs report some operations only, and not in each block.
    let blocks = points
        .iter()
        .filter(|point| point.metric.as_str() != metric::WAIT && point.origin.rank.is_some());
    for point in blocks {
        // Points of a rank share their origin.
        let key = Arc::as_ptr(&point.origin);
        if reports.len() < MAX_RANKS || reports.contains_key(&key) {
            reports.entry(key).or_default().insert(point.bucket);
        }
    }
    let gaps = reports.values().filter(|seen| seen.len() > MIN_GAPS);
    let gaps: Vec<f64> = gaps
        .flat_map(|seen| seen.iter().zip(seen.iter().skip(1)))
        .map(|(one, next)| (next - one) as f64)
        .collect();
    let usual = median(&gaps).unwrap_or(1.0);
    let gaps: Vec<f64> = gaps
        .into_iter()
        .filter(|gap| *gap <= usual * SILENCE)
        .collect();
    match mean(&gaps) {
        Some(gap) if gap > NEARLY_ALL => (gap * MARGIN).ceil() as i64,
        _ => 1,
    }
}
