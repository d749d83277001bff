//! GPU time that a hang costs.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::{ClusterId, IncidentId, Rank};
use echo_core::model::detector_output::LostTime;
use echo_core::units::Window;

use crate::assembly::progress::Progress;
use crate::hang::Hang;

/// Loss of a hanging job's ranks in an interval: all of it, and the part lost by ranks waiting in
/// the operation.
pub(super) fn lost_time(
    incident: IncidentId,
    cluster: &ClusterId,
    interval: Window,
    progress: &Progress,
    found: &[Hang],
) -> Vec<LostTime> {
    let missing = found.iter().flat_map(|hang| &hang.missing).copied();
    let missing: BTreeSet<Rank> = missing.collect();
    let waiting = found
        .iter()
        .flat_map(|hang| hang.entered.iter().chain(&hang.links));
    let held: BTreeSet<Rank> = waiting.chain(&missing).copied().collect();
    let mut groups = BTreeMap::new();
    for rank in held {
        let Some(origin) = progress.origin(rank) else {
            continue;
        };
        let group = (origin.node.clone(), origin.gpu_model.clone());
        let (n_ranks, n_waiting): &mut (u32, u32) = groups.entry(group).or_default();
        *n_ranks += 1;
        *n_waiting += u32::from(!missing.contains(&rank));
    }
    let row = |((node, gpu_model), (n_ranks, n_waiting))| LostTime {
        incident,
        cluster: cluster.clone(),
        node,
        gpu_model,
        interval,
        n_ranks,
        iterations: 0.0,
        lost_gpu_ms: interval.millis() * f64::from(n_ranks),
        peer_wait_gpu_ms: Some(interval.millis() * f64::from(n_waiting)),
        saved_gpu_ms: 0.0,
    };
    groups.into_iter().map(row).collect()
}
