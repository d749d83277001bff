//! Series and origins by the numbers that stand for them in the rows.
//!
//! The id of an entry is a hash of all that it consists of. Senders choose names, so they can make two entries meet in one hash: an id
//! counts only with what it stands for, and an entry whose hash is taken by another has the next free number.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

use echo_core::ids::{ClusterId, JobId, RankOf};
use echo_core::model::event::{Event, Origin};
use xxhash_rust::xxh64::Xxh64;

use crate::duckdb::dictionary::series::{Series, series_id};
use crate::limits::EntryLimits;

mod entry_limits;
pub(super) mod series;

/// What ids stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What the points of one kind have in common.
    Series,
    /// An origin.
    Origin,
}

/// Everything that rows refer to. The writer adds entries before it commits the rows that refer to them, so a reader
/// that sees a row finds its entries; and it takes entries away only once nobody reads any more who began before the rows
/// that referred to them were deleted.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    series: RwLock<HashMap<u64, Arc<Series>>>,
    origins: RwLock<Origins>,
    limits: EntryLimits,
    /// What came with each token since there has no longer been plenty of room.
    brought: Mutex<HashMap<Arc<str>, EntryLimits>>,
    /// Whoever begins to read holds the present one.
    lease: RwLock<Lease>,
    /// Leases given before entries were forgotten that have not been taken away.
    retired: Mutex<Vec<Weak<()>>>,
}

/// Origins by their ids, and how many of them each cluster has.
#[derive(Debug, Default)]
struct Origins {
    by_id: HashMap<u64, Arc<Origin>>,
    clusters: BTreeMap<ClusterId, usize>,
}

/// Held by whoever reads rows, from before the first question until the last entry is looked up.
pub(super) type Lease = Arc<()>;

/// Entries that rows refer to.
#[derive(Debug, Default, Clone)]
pub(super) struct Entries {
    /// Series by their ids.
    pub(super) series: HashMap<u64, Arc<Series>>,
    /// Origins by their ids.
    pub(super) origins: HashMap<u64, Arc<Origin>>,
}

impl Dictionary {
    /// An empty dictionary that is full with so many entries.
    pub(super) fn new(limits: EntryLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Keeps entries from being taken away.
    pub(super) fn lease(&self) -> Lease {
        Arc::clone(&read(&self.lease))
    }

    /// Notes that entries were forgotten. Whoever takes a lease from now on sees no row that refers to them.
    pub(super) fn retire(&self) {
        let before = std::mem::take(&mut *write(&self.lease));
        self.retired().push(Arc::downgrade(&before));
    }

    /// Takes away what is not among the entries that are `stored`, unless somebody may still need it; then the next call does.
    pub(super) fn settle(&self, stored: &Entries) {
        let mut retired = self.retired();
        if retired.is_empty() || retired.iter().any(|lease| lease.strong_count() > 0) {
            return;
        }
        retired.clear();
        drop(retired);
        let mut series = write(&self.series);
        series.retain(|id, _| stored.series.contains_key(id));
        series.shrink_to_fit();
        drop(series);
        write(&self.origins).retain(|id| stored.origins.contains_key(&id));
    }

    fn retired(&self) -> MutexGuard<'_, Vec<Weak<()>>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many series, origins and clusters there are, and how many there may be.
    pub(super) fn fullness(&self) -> (EntryLimits, EntryLimits) {
        let held = EntryLimits {
            series: read(&self.series).len(),
            origins: read(&self.origins).by_id.len(),
            clusters: read(&self.origins).clusters.len(),
        };
        (held, self.limits)
    }

    /// The series with this id; all callers share one.
    pub(super) fn series(&self, id: u64) -> Option<Arc<Series>> {
        read(&self.series).get(&id).cloned()
    }

    /// Whether the series of an event is known.
    pub(super) fn knows_series(&self, event: &Event) -> bool {
        let series = read(&self.series);
        let known = |id| series.get(&id).map(Arc::as_ref);
        find(series_id(event), known, |known| known.has(event)).is_known
    }

    /// The origin that equals this one; all callers share one.
    pub(super) fn same_origin(&self, origin: &Origin) -> Option<Arc<Origin>> {
        let origins = read(&self.origins);
        let known = |id| origins.by_id.get(&id).map(Arc::as_ref);
        let place = find(origin_id(origin), known, |known| known == origin);
        origins.by_id.get(&place.id).cloned()
    }

    /// The origin with this id; all callers share one.
    pub(super) fn origin(&self, id: u64) -> Option<Arc<Origin>> {
        read(&self.origins).by_id.get(&id).cloned()
    }

    /// The clusters that origins belong to.
    pub(super) fn clusters(&self) -> BTreeSet<ClusterId> {
        read(&self.origins).clusters.keys().cloned().collect()
    }

    /// Ids of the origins of a cluster, in order.
    pub(super) fn origins_of(&self, cluster: &ClusterId) -> Vec<u64> {
        let mut ids: Vec<u64> = read(&self.origins)
            .by_id
            .iter()
            .filter(|(_, origin)| origin.cluster == *cluster)
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Adds entries.
    pub(super) fn extend(&self, entries: &Entries) {
        if !entries.series.is_empty() {
            let more = entries.series.iter();
            write(&self.series).extend(more.map(|(id, series)| (*id, Arc::clone(series))));
        }
        if !entries.origins.is_empty() {
            let mut origins = write(&self.origins);
            for (id, origin) in &entries.origins {
                origins.add(*id, origin);
            }
        }
    }
}

impl Origins {
    fn add(&mut self, id: u64, origin: &Arc<Origin>) {
        if self.by_id.insert(id, Arc::clone(origin)).is_none() {
            *self.clusters.entry(origin.cluster.clone()).or_default() += 1;
        }
    }

    fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.by_id.retain(|id, _| is_kept(*id));
        self.by_id.shrink_to_fit();
        self.clusters.clear();
        for origin in self.by_id.values() {
            *self.clusters.entry(origin.cluster.clone()).or_default() += 1;
        }
    }
}

impl Entries {
    /// Takes away those with these ids.
    pub(super) fn forget(&mut self, kind: Kind, ids: &[u64]) {
        for id in ids {
            match kind {
                Kind::Series => drop(self.series.remove(id)),
                Kind::Origin => drop(self.origins.remove(id)),
            }
        }
    }

    /// Adds all of `later`.
    pub(super) fn absorb(&mut self, later: Self) {
        self.series.extend(later.series);
        self.origins.extend(later.origins);
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Where an entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryId {
    /// The id of the entry, or the one that is free for it.
    pub(super) id: u64,
    /// Whether it stands there already.
    pub(super) is_known: bool,
}

/// Finds the id of an entry from its hash on.
pub(super) fn find<'e, T: 'e>(
    hash: u64,
    known: impl Fn(u64) -> Option<&'e T>,
    is_same: impl Fn(&T) -> bool,
) -> EntryId {
    let mut id = hash;
    loop {
        match known(id) {
            Some(entry) if !is_same(entry) => id = id.wrapping_add(1),
            found => {
                let is_known = found.is_some();
                return EntryId { id, is_known };
            }
        }
    }
}

/// The hash of all that an origin consists of.
pub(super) fn origin_id(origin: &Origin) -> u64 {
    let mut hash = Xxh64::new(0);
    let mut text = |part: Option<&str>| {
        // The length keeps neighbours apart, and no text has the length that stands for none.
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        hash.update(&length.to_le_bytes());
        hash.update(part.unwrap_or_default().as_bytes());
    };
    text(Some(origin.cluster.as_str()));
    text(Some(origin.node.as_str()));
    text(origin.job.as_ref().map(JobId::as_str));
    text(origin.gpu_model.as_deref());
    text(origin.gpu_uuid.as_deref());
    text(origin.namespace.as_deref());
    text(origin.pod.as_deref());
    let rank = origin.rank.map(|rank| rank.rank().value());
    let world_size = origin.rank.and_then(RankOf::world_size);
    for number in [rank, world_size] {
        hash.update(&number.map_or(u64::MAX, u64::from).to_le_bytes());
    }
    hash.digest()
}

#[cfg(test)]
mod tests;
