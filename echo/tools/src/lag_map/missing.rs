//! Ranks that others waited for in operations that did not end.

use std::collections::BTreeSet;

use echo_core::model::detector_output::Incident;
use echo_core::units::{Nanos, Window};
use echo_store::timeseries::TimeBuckets;

use super::RankKey;
use super::lags::RankLags;
use crate::ToolError;
use crate::outlier::hang;
use crate::scope::Scope;

/// A hang or stall.
pub(super) struct Absence {
    job: Option<String>,
    ranks: BTreeSet<u32>,
    from: Nanos,
    /// Its end, or the end of what is known about it.
    to: Nanos,
}

/// Loads the hangs and stalls of a window.
pub(super) async fn absences(scope: &Scope<'_>, window: Window) -> Result<Vec<Absence>, ToolError> {
    let cluster = scope.require_cluster()?;
    let incidents = scope.context.store.incidents(Some(cluster), window).await?;
    Ok(incidents.iter().filter_map(absence).collect())
}

fn absence(incident: &Incident) -> Option<Absence> {
    Some(Absence {
        job: incident.job.as_ref().map(ToString::to_string),
        ranks: hang(incident)?
            .ranks
            .iter()
            .map(|rank| rank.value())
            .collect(),
        from: incident.first_seen,
        to: incident.cleared_at.unwrap_or(incident.last_seen),
    })
}

/// Returns the missing ranks.
pub(super) fn missing_ranks(absences: &[Absence]) -> BTreeSet<RankKey> {
    let ranks = absences
        .iter()
        .flat_map(|one| one.ranks.iter().map(|rank| (one.job.clone(), *rank)));
    ranks.collect()
}

/// Records for each missing rank how long others had waited for it by the end of a bucket.
pub(super) fn mark(all: &mut [RankLags], absences: &[Absence], buckets: TimeBuckets) {
    for absence in absences {
        let is_missing =
            |of: &&mut RankLags| of.job == absence.job && absence.ranks.contains(&of.rank);
        for of_rank in all.iter_mut().filter(is_missing) {
            for (cell, place) in of_rank.missing_ms.iter_mut().zip(0..) {
                let from = buckets.window().from();
                let bucket_from = from.offset(buckets.length_nanos().saturating_mul(place));
                let bucket_to = bucket_from.offset(buckets.length_nanos());
                if absence.from < bucket_to && bucket_from < absence.to {
                    let waited_ms = bucket_to.min(absence.to).millis_since(absence.from);
                    *cell = Some(cell.unwrap_or(0.0).max(waited_ms));
                }
            }
        }
    }
}
