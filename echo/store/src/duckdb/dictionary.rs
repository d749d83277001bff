//! Dictionary of series and origins: rows refer to them by id.
//!
//! The id of an entry is a hash of all its fields. Senders choose names and can provoke collisions,
//! so an id is used only after comparing the entries; an entry whose hash is taken by another gets
//! the next free id.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

use echo_core::ids::{ClusterId, JobId, RankInJob};
use echo_core::model::event::{Event, Origin};
use xxhash_rust::xxh64::Xxh64;

use crate::duckdb::dictionary::series::{Series, series_id};
use crate::limits::EntryLimits;

mod entry_limits;
pub(super) mod series;

/// Kind of entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Fields shared by the points of one series.
    Series,
    /// Origin.
    Origin,
}

/// All entries that rows refer to. The writer adds entries before it commits rows that refer to
/// them, so a reader that sees a row finds its entries. It removes entries only after all readers
/// have finished that began before the referring rows were deleted.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    series: RwLock<HashMap<u64, Arc<Series>>>,
    origins: RwLock<Origins>,
    limits: EntryLimits,
    /// Entries added by each token since usage exceeded the freely available fraction.
    added: Mutex<HashMap<Arc<str>, EntryLimits>>,
    /// Current lease, cloned by each reader.
    lease: RwLock<Lease>,
    /// Leases given out before entries were deleted, whose entries have not been removed yet.
    retired: Mutex<Vec<Weak<()>>>,
}

/// Origins by id, and their number per cluster.
#[derive(Debug, Default)]
struct Origins {
    by_id: HashMap<u64, Arc<Origin>>,
    clusters: BTreeMap<ClusterId, usize>,
}

/// Lease of a reader, held from before its first query until its last lookup.
pub(super) type Lease = Arc<()>;

/// Dictionary entries.
#[derive(Debug, Default, Clone)]
pub(super) struct Entries {
    /// Series by id.
    pub(super) series: HashMap<u64, Arc<Series>>,
    /// Origins by id.
    pub(super) origins: HashMap<u64, Arc<Origin>>,
}

impl Dictionary {
    /// Empty dictionary with these limits.
    pub(super) fn new(limits: EntryLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Returns a lease, which keeps entries from being removed.
    pub(super) fn lease(&self) -> Lease {
        Arc::clone(&read(&self.lease))
    }

    /// Retires the current lease after entries were deleted. Readers with a later lease see no row
    /// that refers to them.
    pub(super) fn retire(&self) {
        let before = std::mem::take(&mut *write(&self.lease));
        self.retired().push(Arc::downgrade(&before));
    }

    /// Removes entries that are not in `stored`, unless a reader may still need them; then the next
    /// call does.
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

    /// Current usage and limits.
    pub(super) fn fullness(&self) -> (EntryLimits, EntryLimits) {
        let used = EntryLimits {
            series: read(&self.series).len(),
            origins: read(&self.origins).by_id.len(),
            clusters: read(&self.origins).clusters.len(),
        };
        (used, self.limits)
    }

    /// Series with this id; all callers share one allocation.
    pub(super) fn series(&self, id: u64) -> Option<Arc<Series>> {
        read(&self.series).get(&id).cloned()
    }

    /// Returns true if the series of an event is known.
    pub(super) fn knows_series(&self, event: &Event) -> bool {
        let series = read(&self.series);
        let known = |id| series.get(&id).map(Arc::as_ref);
        find(series_id(event), known, |known| known.has(event)).is_known
    }

    /// Known origin equal to this one; all callers share one allocation.
    pub(super) fn same_origin(&self, origin: &Origin) -> Option<Arc<Origin>> {
        let origins = read(&self.origins);
        let known = |id| origins.by_id.get(&id).map(Arc::as_ref);
        let entry = find(origin_id(origin), known, |known| known == origin);
        origins.by_id.get(&entry.id).cloned()
    }

    /// Origin with this id; all callers share one allocation.
    pub(super) fn origin(&self, id: u64) -> Option<Arc<Origin>> {
        read(&self.origins).by_id.get(&id).cloned()
    }

    /// Clusters of the origins.
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
    /// Removes the entries with these ids.
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

/// Id of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryId {
    /// Id of the entry, or the free id for it.
    pub(super) id: u64,
    /// True if the entry is already stored.
    pub(super) is_known: bool,
}

/// Finds the id of an entry, probing from its hash.
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

/// Hash of all fields of an origin.
pub(super) fn origin_id(origin: &Origin) -> u64 {
    let mut hash = Xxh64::new(0);
    let mut text = |part: Option<&str>| {
        // The length separates adjacent fields, and no text has the length that represents `None`.
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
    let world_size = origin.rank.and_then(RankInJob::world_size);
    for number in [rank, world_size] {
        hash.update(&number.map_or(u64::MAX, u64::from).to_le_bytes());
    }
    hash.digest()
}

#[cfg(test)]
mod tests;
