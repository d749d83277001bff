//! Points of clusters that belong to another Echo. They are stored like all others: an Echo that has them is better than none.
//! But their sender was told another number of Echos, and who asks where they belong does not find them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use echo_core::ids::ClusterId;
use echo_core::model::event::Event;
use echo_core::shard::{Other, Shard};
use tracing::warn;

/// Most clusters that are warned of by name.
const MAX_NAMED: usize = 1000;

/// Points of clusters that belong elsewhere.
#[derive(Debug, Default)]
pub struct Strays {
    shard: Option<Arc<Shard>>,
    named: Mutex<BTreeSet<ClusterId>>,
    points: AtomicU64,
}

/// The clusters of one batch that belong elsewhere, each with the number of its points.
#[derive(Debug)]
pub(super) struct Stray(BTreeMap<ClusterId, (Other, u64)>);

impl Strays {
    /// Of what comes to this shard; there are none where it is the only one.
    pub fn of(shard: Option<Arc<Shard>>) -> Self {
        Self {
            shard,
            ..Self::default()
        }
    }

    /// Points that were stored although their clusters belong elsewhere; nothing where there is no elsewhere.
    pub fn points(&self) -> Option<u64> {
        self.shard.as_ref().map(|_| self.points.load(Relaxed))
    }

    /// Looks for them in a batch: once for all points in a row that are of one sender.
    pub(super) fn among(&self, events: &[Event]) -> Stray {
        let Some(shard) = self.shard.as_deref() else {
            return Stray(BTreeMap::new());
        };
        let mut found: BTreeMap<ClusterId, (Other, u64)> = BTreeMap::new();
        let mut last_at_home = None;
        for of_one in events.chunk_by(|a, b| Arc::ptr_eq(&a.origin, &b.origin)) {
            let Some(cluster) = of_one.first().map(|event| &event.origin.cluster) else {
                continue;
            };
            if last_at_home == Some(cluster) {
                continue;
            }
            let n = u64::try_from(of_one.len()).unwrap_or(u64::MAX);
            if let Some((_, points)) = found.get_mut(cluster) {
                *points += n;
            } else if let Some(other) = shard.other_of(cluster) {
                found.insert(cluster.clone(), (other, n));
            } else {
                last_at_home = Some(cluster);
            }
        }
        Stray(found)
    }

    /// Counts those of a batch that was stored, and names clusters that were not named yet.
    pub(super) fn stored(&self, stray: Stray) {
        for (cluster, (other, points)) in stray.0 {
            self.points.fetch_add(points, Relaxed);
            let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = named.len() < MAX_NAMED && named.insert(cluster.clone());
            drop(named);
            if is_new {
                warn!(
                    cluster.id = cluster.as_str(),
                    "cluster {cluster} belongs to {other}, and reports here: its events are stored all the same, but its agents \
                     should be told the --shards that this Echo has"
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

    use super::Strays;

    /// The second of three: `prod` belongs to the first, `lab` to the last, `eu` here.
    fn strays() -> Strays {
        let three = NonZeroU32::new(3).unwrap();
        let shard = Shard::new(1, three, "http://echo-{shard}").unwrap();
        Strays::of(Some(Arc::new(shard)))
    }

    /// So many points of four ranks in turn, the clusters one after the other.
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
    fn points_of_foreign_clusters_are_counted_when_they_are_stored() {
        let strays = strays();
        let home = (0..).map(|n| format!("eu-{n}"));
        let mut home = home.filter(|name| {
            let cluster = name.parse().unwrap();
            strays.shard.as_ref().unwrap().other_of(&cluster).is_none()
        });
        let home = home.next().unwrap();
        let found = strays.among(&events(&["prod", &home, "lab", "prod"]));
        let told: Vec<(&str, u32, u64)> = found
            .0
            .iter()
            .map(|(cluster, (other, points))| (cluster.as_str(), other.ordinal, *points))
            .collect();
        assert_eq!(told, [("lab", 2, 40), ("prod", 0, 80)]);
        assert_eq!(strays.points(), Some(0));
        strays.stored(found);
        assert_eq!(strays.points(), Some(120));
        strays.stored(strays.among(&events(&["lab"])));
        assert_eq!(strays.points(), Some(160));
        assert_eq!(strays.named.lock().unwrap().len(), 2);
    }

    #[test]
    fn where_there_is_one_echo_nothing_belongs_elsewhere() {
        let strays = Strays::default();
        assert!(strays.among(&events(&["prod"])).0.is_empty());
        assert_eq!(strays.points(), None);
    }
}
