//! Coverage (reporters by time), cached in time slots.
//!
//! Every answer reports its coverage of the cluster, which requires the reporters in its window: an
//! hour of a large fleet is a hundred million events. Counts are cached per slot until something is
//! stored or deleted in it; then only changed slots and the ends of the window are counted again.
//! The results are the same with and without the cache.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use echo_core::ids::ClusterId;
use echo_core::units::{Nanos, Window};

use crate::Coverage;
use crate::duckdb::connection_pool::Reader;
use crate::duckdb::dictionary::Dictionary;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::rows::coverage::{self, Seen, SlottedWindow};
use crate::reporting::{CoverageRows, OriginCoverage};

mod slot;

use slot::{Slot, is_tileable, tiles, windows_to_count};

/// Maximum number of cached rows, of 64 bytes each, and of rows that one query may count by
/// slot.
const MAX_ROWS: usize = 2_000_000;

/// Maximum number of cached slots, full or empty.
const MAX_SLOTS: usize = 20_000;

/// Origins that reported in one slot: unique ids, in order.
type SlotRows = Arc<[(u64, Seen)]>;

/// Cache of coverage by slot.
#[derive(Debug, Default)]
pub(super) struct CoverageCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    counts: HashMap<Slot, (SlotRows, QueryNumber)>,
    rows: usize,
    /// Number of the last query; the least recently used slots are evicted first.
    last_query: QueryNumber,
    /// Number of the last query that began before all slots were invalidated.
    valid_after: QueryNumber,
    /// Slots changed during each query in progress.
    changed: Vec<Weak<Changed>>,
}

/// Number of a query.
type QueryNumber = u64;

/// Finest slots that have changed since a query began.
type Changed = Mutex<BTreeSet<Slot>>;

/// Cached slots of a window, and those that have to be counted.
#[derive(Debug)]
struct Lookup {
    query: QueryNumber,
    known: Vec<SlotRows>,
    missing: BTreeSet<Slot>,
    changed: Arc<Changed>,
}

/// Returns one row per job, node and rank that reported in the window.
pub(super) fn coverage(
    reader: &Reader,
    dictionary: &Dictionary,
    cache: &CoverageCache,
    cluster: Option<&ClusterId>,
    window: Window,
) -> EngineResult<Vec<Coverage>> {
    // Leased before anything is read, so that every entry that the rows refer to is kept.
    let _lease = dictionary.lease();
    let (origins, _) = dictionary.fullness();
    let wanted = cluster.map(|cluster| dictionary.origins_of(cluster));
    let seen = cache.seen(reader, window, origins.origins, wanted.as_deref())?;
    let mut reporting = CoverageRows::default();
    for (origin, seen) in seen {
        let origin = dictionary.origin(origin);
        let origin = origin.filter(|origin| cluster.is_none_or(|wanted| *wanted == origin.cluster));
        if let Some(origin) = origin {
            reporting.add(OriginCoverage {
                origin,
                first: seen.first,
                last: seen.last,
                has_host_evidence: seen.has_host_evidence,
                activity: seen.activity,
            });
        }
    }
    Ok(reporting.into_rows())
}

impl CoverageCache {
    /// Invalidates the slots that contain these instants. Called after the commit that changed them
    /// and before the commit is acknowledged.
    pub(super) fn invalidate(&self, instants: impl Iterator<Item = Nanos>) {
        let mut touched: Vec<Slot> = instants.map(Slot::finest).collect();
        touched.sort_unstable();
        touched.dedup();
        let mut cache = lock(&self.0);
        for slot in touched {
            for outer in slot.with_outer() {
                cache.remove(outer);
            }
            for changed in cache.changed.iter().filter_map(Weak::upgrade) {
                lock(&changed).insert(slot);
            }
        }
    }

    /// Invalidates all slots, as [`Self::invalidate`] does.
    pub(super) fn invalidate_all(&self) {
        let mut cache = lock(&self.0);
        let last_query = cache.last_query;
        *cache = CacheState {
            last_query,
            valid_after: last_query,
            ..CacheState::default()
        };
    }

    /// Returns the coverage of each origin in the window, by its id. `n_origins` is the approximate
    /// number of origins; the result includes at least the wanted ones.
    fn seen(
        &self,
        reader: &Reader,
        window: Window,
        n_origins: usize,
        wanted: Option<&[u64]>,
    ) -> EngineResult<HashMap<u64, Seen>> {
        let mut seen = HashMap::new();
        let tiled = is_tileable(window).then(|| tiles(window));
        let lookup = tiled.map(|(slots, ends)| (self.look_up_slots(&slots), ends));
        // A window that is too large to be cached is counted as a whole, which takes no more memory
        // than the result.
        let fits = |lookup: &Lookup| lookup.missing.len().saturating_mul(n_origins) <= MAX_ROWS;
        let Some((lookup, ends)) = lookup.filter(|(lookup, _)| fits(lookup)) else {
            let whole = SlottedWindow::whole(window);
            coverage::count(reader, whole, |_, origin, more| {
                add(&mut seen, origin, more);
            })?;
            return Ok(seen);
        };
        for rows in &lookup.known {
            for_each_wanted(rows, wanted, |(origin, more)| {
                add(&mut seen, *origin, *more);
            });
        }
        let mut counted: BTreeMap<Slot, Vec<(u64, Seen)>> = BTreeMap::new();
        for slotted in windows_to_count(&lookup.missing, &ends) {
            coverage::count(reader, slotted, |begin, origin, more| {
                add(&mut seen, origin, more);
                let slot = Slot::at(begin, slotted.slot_nanos);
                counted.entry(slot).or_default().push((origin, more));
            })?;
        }
        self.insert_counted(&lookup, counted);
        Ok(seen)
    }

    /// Looks up the slots in the cache.
    fn look_up_slots(&self, slots: &[Slot]) -> Lookup {
        let mut cache = lock(&self.0);
        cache.last_query += 1;
        let mut lookup = Lookup {
            query: cache.last_query,
            known: Vec::new(),
            missing: BTreeSet::new(),
            changed: Arc::default(),
        };
        for slot in slots {
            cache.look_up(*slot, &mut lookup);
        }
        // Register before anything is read: later changes may or may not be counted.
        cache.changed.retain(|changed| changed.strong_count() > 0);
        cache.changed.push(Arc::downgrade(&lookup.changed));
        lookup
    }

    /// Caches counted slots, except those that have changed meanwhile.
    fn insert_counted(&self, lookup: &Lookup, mut counted: BTreeMap<Slot, Vec<(u64, Seen)>>) {
        let rows = |slot: &Slot| in_order(counted.remove(slot).unwrap_or_default());
        let counts: Vec<SlotRows> = lookup.missing.iter().map(rows).collect();
        let mut cache = lock(&self.0);
        if lookup.query <= cache.valid_after {
            return;
        }
        let changed = lock(&lookup.changed);
        for (slot, rows) in lookup.missing.iter().zip(counts) {
            if !changed.iter().any(|inner| slot.contains(*inner)) {
                cache.insert(*slot, rows, lookup.query);
            }
        }
        cache.evict();
    }
}

impl CacheState {
    /// Adds the cached and the missing parts of a slot. A slot with cached parts is looked up part
    /// by part.
    fn look_up(&mut self, slot: Slot, lookup: &mut Lookup) {
        if let Some((rows, used)) = self.counts.get_mut(&slot) {
            *used = lookup.query;
            lookup.known.push(Arc::clone(rows));
            return;
        }
        if !slot.parts().any(|part| self.counts.contains_key(&part)) {
            lookup.missing.insert(slot);
            return;
        }
        let (n_known, n_missing) = (lookup.known.len(), lookup.missing.len());
        for part in slot.parts() {
            self.look_up(part, lookup);
        }
        if lookup.missing.len() == n_missing {
            let parts = lookup.known.split_off(n_known);
            let whole = merged(&parts);
            self.insert(slot, Arc::clone(&whole), lookup.query);
            lookup.known.push(whole);
        }
    }

    fn insert(&mut self, slot: Slot, rows: SlotRows, query: QueryNumber) {
        self.remove(slot);
        self.rows += rows.len();
        self.counts.insert(slot, (rows, query));
    }

    fn remove(&mut self, slot: Slot) {
        if let Some((rows, _)) = self.counts.remove(&slot) {
            self.rows -= rows.len();
        }
    }

    /// Evicts the least recently used slots.
    fn evict(&mut self) {
        if self.rows <= MAX_ROWS && self.counts.len() <= MAX_SLOTS {
            return;
        }
        let mut by_use: Vec<(QueryNumber, Slot)> = self
            .counts
            .iter()
            .map(|(slot, (_, used))| (*used, *slot))
            .collect();
        by_use.sort_unstable();
        for (_, slot) in by_use {
            if self.rows <= MAX_ROWS / 2 && self.counts.len() <= MAX_SLOTS / 2 {
                return;
            }
            self.remove(slot);
        }
    }
}

// No code that holds one of these locks can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn merged(parts: &[SlotRows]) -> SlotRows {
    let mut whole = HashMap::new();
    for (origin, seen) in parts.iter().flat_map(|rows| rows.iter()) {
        add(&mut whole, *origin, *seen);
    }
    in_order(whole.into_iter().collect())
}

fn in_order(mut rows: Vec<(u64, Seen)>) -> SlotRows {
    rows.sort_unstable_by_key(|(origin, _)| *origin);
    Arc::from(rows)
}

/// Passes the wanted rows to `each`: if few origins are wanted, by binary search, otherwise all
/// rows. A query about one of two hundred clusters thus need not scan the whole fleet in every
/// slot.
fn for_each_wanted(
    rows: &[(u64, Seen)],
    wanted: Option<&[u64]>,
    mut each: impl FnMut(&(u64, Seen)),
) {
    const FEW: usize = 8;
    let few = wanted.filter(|wanted| wanted.len() < rows.len() / FEW);
    let Some(few) = few else {
        return rows.iter().for_each(each);
    };
    for id in few {
        if let Ok(at) = rows.binary_search_by_key(id, |(origin, _)| *origin)
            && let Some(row) = rows.get(at)
        {
            each(row);
        }
    }
}

fn add(seen: &mut HashMap<u64, Seen>, origin: u64, more: Seen) {
    let known = seen.entry(origin).or_insert(more);
    *known = known.with(more);
}

#[cfg(test)]
mod tests;
