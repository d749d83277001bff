//! Hourly costs: allocated and lost GPU time by node.
//!
//! An hour is computed only from its own events, so hours add up, and later events do not change a
//! stored hour.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::Arc;

use echo_core::ids::{ClusterId, JobId, NodeId, Rank};
use echo_core::model::cost::{NodeHour, ReportSpan};
use echo_core::model::detector_output::LostTime;
use echo_core::units::{GpuTime, Hour, Nanos, Window};

use crate::cost::losses;

/// Largest distance of a report from the border of an hour at which its rank counts as allocated at
/// the border, milliseconds. Ranks report every few seconds.
const REACH_MS: f64 = 15_000.0;

/// Key of a node hour.
type HourKey = (ClusterId, NodeId, Option<Arc<str>>);

/// Allocated GPU time in an hour or a part of it: from the first to the last event of each rank,
/// one GPU per rank.
pub fn allocated(piece: Window, seen: &[ReportSpan]) -> GpuTime {
    let ranks = seen.iter().filter(|seen| seen.origin.rank.is_some());
    ranks
        .map(|seen| time_in(piece, (seen.first, seen.last)))
        .sum()
}

fn time_in(piece: Window, (first, last): (Nanos, Nanos)) -> GpuTime {
    let is_near = |border: Nanos, event_ms: f64| Hour::begins_at(border) && event_ms <= REACH_MS;
    let from = if is_near(piece.from(), first.millis_since(piece.from())) {
        piece.from()
    } else {
        first
    };
    let to = if is_near(piece.to(), piece.to().millis_since(last)) {
        piece.to()
    } else {
        last
    };
    GpuTime::from_millis(to.millis_since(from))
}

/// One row per node and GPU model that reported in the hour or lost time in it, in their order.
/// `lost` are the intervals that begin in the hour.
pub fn node_hours(hour: Hour, seen: &[ReportSpan], lost: &[LostTime]) -> Vec<NodeHour> {
    let counts = counts(seen);
    let mut rows: BTreeMap<HourKey, NodeHour> = BTreeMap::new();
    let mut row_of = |(cluster, node, gpu_model): HourKey, change: &dyn Fn(&mut NodeHour)| {
        let (ranks_reporting, ranks_expected) = counts.get(&cluster).copied().unwrap_or((0, 0));
        let place = (cluster.clone(), node.clone(), gpu_model.clone());
        let row = rows.entry(place).or_insert(NodeHour {
            hour,
            cluster,
            node,
            gpu_model,
            gpus: 0,
            allocated: GpuTime::ZERO,
            lost: GpuTime::ZERO,
            ranks_reporting,
            ranks_expected,
        });
        change(row);
    };
    for seen in seen.iter().filter(|seen| seen.origin.rank.is_some()) {
        let origin = &seen.origin;
        let model = origin.gpu_model.clone();
        row_of(
            (origin.cluster.clone(), origin.node.clone(), model),
            &|row| {
                row.gpus += 1;
                row.allocated = row.allocated + allocated(hour.window(), slice::from_ref(seen));
            },
        );
    }
    for loss in losses(lost, &[hour.begin()]) {
        row_of((loss.cluster, loss.node, loss.gpu_model), &|row| {
            row.lost = row.lost + loss.time;
        });
    }
    rows.into_values().collect()
}

/// Returns the number of ranks that reported in each cluster, and the number that its reporting
/// jobs have. A job that does not report its size counts as complete.
fn counts(seen: &[ReportSpan]) -> BTreeMap<ClusterId, (u32, u32)> {
    type Job = (ClusterId, Option<JobId>);
    let mut jobs: BTreeMap<Job, (BTreeSet<Rank>, u32)> = BTreeMap::new();
    for origin in seen.iter().map(|seen| &seen.origin) {
        let Some(rank) = origin.rank else { continue };
        let job = (origin.cluster.clone(), origin.job.clone());
        let (ranks, size) = jobs.entry(job).or_default();
        ranks.insert(rank.rank());
        *size = rank
            .world_size()
            .map_or(*size, |reported| reported.max(*size));
    }
    let mut counts: BTreeMap<ClusterId, (u32, u32)> = BTreeMap::new();
    for ((cluster, _), (ranks, size)) in jobs {
        let reporting = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let (all_reporting, all_expected) = counts.entry(cluster).or_default();
        *all_reporting = all_reporting.saturating_add(reporting);
        *all_expected = all_expected.saturating_add(size.max(reporting));
    }
    counts
}

/// Merges the rows of an hour whose events have been partly deleted since it was stored: stored
/// values stay, unless the new ones are larger.
pub fn kept(before: Vec<NodeHour>, after: Vec<NodeHour>) -> Vec<NodeHour> {
    let place = |row: &NodeHour| (row.cluster.clone(), row.node.clone(), row.gpu_model.clone());
    let mut rows: BTreeMap<HourKey, NodeHour> =
        before.into_iter().map(|row| (place(&row), row)).collect();
    for row in after {
        // Lost time is not deleted, so the later sum is more accurate.
        let lost = row.lost;
        let known = rows.entry(place(&row)).or_insert_with(|| row.clone());
        if row.allocated > known.allocated {
            *known = row;
        }
        known.lost = lost;
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests;
