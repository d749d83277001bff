//! Counter of points of clusters that belong to another shard. The points are stored rather than
//! lost, but queries to the right shard do not find them. The cause is a sender with another number
//! of shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use echo_core::ids::ClusterId;
use echo_core::model::event::Event;
use echo_core::shard::{OtherShard, Shard};
use tracing::warn;

/// Maximum number of clusters that are logged by name.
const MAX_NAMED: usize = 1000;

/// Counter of points of clusters that belong to another shard.
#[derive(Debug, Default)]
pub struct Misrouted {
    shard: Option<Arc<Shard>>,
    named: Mutex<BTreeSet<ClusterId>>,
    points: AtomicU64,
}

/// Misrouted clusters of one batch, with their numbers of points.
#[derive(Debug)]
pub(super) struct MisroutedBatch(BTreeMap<ClusterId, (OtherShard, u64)>);

impl Misrouted {
    /// Creates the counter for this shard; `None` if unsharded, so that no point is misrouted.
    pub fn new(shard: Option<Arc<Shard>>) -> Self {
        Self {
            shard,
            ..Self::default()
        }
    }

    /// Returns the number of misrouted points that were stored; `None` if unsharded.
    pub fn points(&self) -> Option<u64> {
        self.shard.as_ref().map(|_| self.points.load(Relaxed))
    }

    /// Finds misrouted clusters in a batch, with one lookup per run of events of one sender.
    pub(super) fn find(&self, events: &[Event]) -> MisroutedBatch {
        let Some(shard) = self.shard.as_deref() else {
            return MisroutedBatch(BTreeMap::new());
        };
        let mut found: BTreeMap<ClusterId, (OtherShard, u64)> = BTreeMap::new();
        let mut last_local = None;
        for run in events.chunk_by(|a, b| Arc::ptr_eq(&a.origin, &b.origin)) {
            let Some(cluster) = run.first().map(|event| &event.origin.cluster) else {
                continue;
            };
            if last_local == Some(cluster) {
                continue;
            }
            let n = u64::try_from(run.len()).unwrap_or(u64::MAX);
            if let Some((_, points)) = found.get_mut(cluster) {
                *points += n;
            } else if let Some(other) = shard.other_of(cluster) {
                found.insert(cluster.clone(), (other, n));
            } else {
                last_local = Some(cluster);
            }
        }
        MisroutedBatch(found)
    }

    /// Counts the misrouted points of a stored batch, and logs clusters not logged before.
    pub(super) fn record(&self, batch: MisroutedBatch) {
        for (cluster, (other, points)) in batch.0 {
            self.points.fetch_add(points, Relaxed);
            let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = named.len() < MAX_NAMED && named.insert(cluster.clone());
            drop(named);
            if is_new {
                warn!(
                    cluster.id = cluster.as_str(),
                    "cluster {cluster} belongs to {other} but reports here: its events are stored; set --shards of its agents to the value of this instance"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use echo_core::ids::ClusterId;
    use echo_core::model::event::Event;
    use echo_core::shard::Shard;
    use echo_tools::fixture::batch;

    use super::Misrouted;

    /// Returns the counter of the second of three shards: `prod` belongs to the first, `lab` to the
    /// last, `eu` to this one.
    fn misrouted() -> Misrouted {
        let three = NonZeroU32::new(3).unwrap();
        let shard = Shard::new(1, three, "http://echo-{shard}").unwrap();
        Misrouted::new(Some(Arc::new(shard)))
    }

    /// Returns points of four ranks in turn, one cluster after the other.
    fn events(clusters: &[&str]) -> Vec<Event> {
        let of = |cluster: &&str| {
            let cluster: ClusterId = cluster.parse().unwrap();
            let mut events = batch(0..4, 0..=45).events;
            for event in &mut events {
                let mut origin = (*event.origin).clone();
                origin.cluster = cluster.clone();
                event.origin = Arc::new(origin);
            }
            events
        };
        clusters.iter().flat_map(of).collect()
    }

    #[test]
    fn points_of_clusters_of_other_shards_are_counted_when_stored() {
        let misrouted = misrouted();
        let local = (0..).map(|n| format!("eu-{n}"));
        let mut local = local.filter(|name| {
            let cluster = name.parse().unwrap();
            misrouted
                .shard
                .as_ref()
                .unwrap()
                .other_of(&cluster)
                .is_none()
        });
        let local = local.next().unwrap();
        let found = misrouted.find(&events(&["prod", &local, "lab", "prod"]));
        let counts: Vec<(&str, u32, u64)> = found
            .0
            .iter()
            .map(|(cluster, (other, points))| (cluster.as_str(), other.ordinal, *points))
            .collect();
        assert_eq!(counts, [("lab", 2, 40), ("prod", 0, 80)]);
        assert_eq!(misrouted.points(), Some(0));
        misrouted.record(found);
        assert_eq!(misrouted.points(), Some(120));
        misrouted.record(misrouted.find(&events(&["lab"])));
        assert_eq!(misrouted.points(), Some(160));
        assert_eq!(misrouted.named.lock().unwrap().len(), 2);
    }

    #[test]
    fn an_unsharded_instance_has_no_misrouted_points() {
        let misrouted = Misrouted::default();
        assert!(misrouted.find(&events(&["prod"])).0.is_empty());
        assert_eq!(misrouted.points(), None);
    }
}
