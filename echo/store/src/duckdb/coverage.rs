//! Who reported when, kept in slots of time.
//!
//! Every answer says how much of the cluster it rests on, and so asks who reported in its window: an hour of a large fleet is
//! a hundred million events. What was counted once is kept, slot by slot, until something is stored or deleted in the slot;
//! then only the present slots and the ends of the window are counted anew. Answers are the same with and without.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use echo_core::ids::ClusterId;
use echo_core::units::{Nanos, Window};

use crate::Coverage;
use crate::duckdb::connection_pool::Reader;
use crate::duckdb::dictionary::Dictionary;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::rows::coverage::{self, Seen, SlottedWindow};
use crate::reporting::{OriginCoverage, CoverageRows};

mod slot;

use slot::{Slot, is_tileable, windows_to_count, tiles};

/// Rows of all slots that are kept at most, of some 40 bytes each, and that one question may count slot by slot.
const MAX_ROWS: usize = 3_000_000;

/// Slots that are kept at most, full or empty.
const MAX_SLOTS: usize = 20_000;

/// Who reported in one slot: ids of origins, each once, in order.
type SlotRows = Arc<[(u64, Seen)]>;

/// What is kept of who reported when.
#[derive(Debug, Default)]
pub(super) struct CoverageCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    sheets: HashMap<Slot, (SlotRows, QueryNumber)>,
    rows: usize,
    /// Number of the last question. What was used longest ago goes first.
    turn: QueryNumber,
    /// What each question is told that is being answered.
    changed: Vec<Weak<Changed>>,
}

/// Number of a question.
type QueryNumber = u64;

/// Finest slots in which something has changed since a question was asked.
type Changed = Mutex<BTreeSet<Slot>>;

/// What is known of a window, and what has to be counted.
#[derive(Debug)]
struct Lookup {
    turn: QueryNumber,
    known: Vec<SlotRows>,
    missing: BTreeSet<Slot>,
    changed: Arc<Changed>,
}

/// One row per job, node and rank that reported in the window.
pub(super) fn coverage(
    reader: &Reader,
    (dictionary, cache): (&Dictionary, &CoverageCache),
    (cluster, window): (Option<&ClusterId>, Window),
) -> EngineResult<Vec<Coverage>> {
    // Taken before anything is read, so that all that the rows refer to is kept.
    let _lease = dictionary.lease();
    let (origins, _) = dictionary.fullness();
    let wanted = cluster.map(|cluster| dictionary.origins_of(cluster));
    let seen = cache.seen(reader, window, (origins.origins, wanted.as_deref()))?;
    let mut reporting = CoverageRows::default();
    for (origin, seen) in seen {
        let origin = dictionary.origin(origin);
        let origin = origin.filter(|origin| cluster.is_none_or(|asked| *asked == origin.cluster));
        if let Some(origin) = origin {
            reporting.add(OriginCoverage {
                origin,
                first: seen.first,
                last: seen.last,
                has_host_evidence: seen.has_host_evidence,
            });
        }
    }
    Ok(reporting.into_rows())
}

impl CoverageCache {
    /// Forgets the slots that these instants lie in. Called after the commit that changed something there and before
    /// anybody is told of it.
    pub(super) fn invalidate(&self, instants: impl Iterator<Item = Nanos>) {
        let mut touched: Vec<Slot> = instants.map(Slot::finest).collect();
        touched.sort_unstable();
        touched.dedup();
        let mut kept = lock(&self.0);
        for slot in touched {
            for outer in slot.with_outer() {
                kept.remove(outer);
            }
            for changed in kept.changed.iter().filter_map(Weak::upgrade) {
                lock(&changed).insert(slot);
            }
        }
    }

    /// When each origin was seen in the window, by its id. There are about `n_origins`, and those that are wanted are told at
    /// least.
    fn seen(
        &self,
        reader: &Reader,
        window: Window,
        (n_origins, wanted): (usize, Option<&[u64]>),
    ) -> EngineResult<HashMap<u64, Seen>> {
        let mut seen = HashMap::new();
        let tiled = is_tileable(window).then(|| tiles(window));
        let asked = tiled.map(|(slots, ends)| (self.look_up_slots(&slots), ends));
        // Too much to be kept is counted as a whole, which takes no more room than the answer.
        let fits = |asked: &Lookup| asked.missing.len().saturating_mul(n_origins) <= MAX_ROWS;
        let Some((asked, ends)) = asked.filter(|(asked, _)| fits(asked)) else {
            let whole = SlottedWindow::whole(window);
            coverage::count(reader, whole, |_, origin, more| {
                add(&mut seen, origin, more);
            })?;
            return Ok(seen);
        };
        for sheet in &asked.known {
            for_each_wanted(sheet, wanted, |(origin, more)| {
                add(&mut seen, *origin, *more);
            });
        }
        let mut counted: BTreeMap<Slot, Vec<(u64, Seen)>> = BTreeMap::new();
        for stretch in windows_to_count(&asked.missing, &ends) {
            coverage::count(reader, stretch, |begin, origin, more| {
                add(&mut seen, origin, more);
                let slot = Slot::at(begin, stretch.slot_nanos);
                counted.entry(slot).or_default().push((origin, more));
            })?;
        }
        self.insert_counted(&asked, counted);
        Ok(seen)
    }

    /// What is kept of these slots.
    fn look_up_slots(&self, slots: &[Slot]) -> Lookup {
        let mut kept = lock(&self.0);
        kept.turn += 1;
        let mut asked = Lookup {
            turn: kept.turn,
            known: Vec::new(),
            missing: BTreeSet::new(),
            changed: Arc::default(),
        };
        for slot in slots {
            kept.look_up(*slot, &mut asked);
        }
        // Before anything is read: what changes from now on may or may not be counted.
        kept.changed.retain(|changed| changed.strong_count() > 0);
        kept.changed.push(Arc::downgrade(&asked.changed));
        asked
    }

    /// Keeps what was counted, but for slots in which something has changed meanwhile.
    fn insert_counted(&self, asked: &Lookup, mut counted: BTreeMap<Slot, Vec<(u64, Seen)>>) {
        let sheet = |slot: &Slot| in_order(counted.remove(slot).unwrap_or_default());
        let sheets: Vec<SlotRows> = asked.missing.iter().map(sheet).collect();
        let mut kept = lock(&self.0);
        let changed = lock(&asked.changed);
        for (slot, sheet) in asked.missing.iter().zip(sheets) {
            if !changed.iter().any(|inner| slot.contains(*inner)) {
                kept.insert(*slot, sheet, asked.turn);
            }
        }
        kept.evict();
    }
}

impl CacheState {
    /// Adds what is known of a slot and what is missing. A slot of which parts are known is taken part by part.
    fn look_up(&mut self, slot: Slot, asked: &mut Lookup) {
        if let Some((sheet, used)) = self.sheets.get_mut(&slot) {
            *used = asked.turn;
            asked.known.push(Arc::clone(sheet));
            return;
        }
        if !slot.parts().any(|part| self.sheets.contains_key(&part)) {
            asked.missing.insert(slot);
            return;
        }
        let (n_known, n_missing) = (asked.known.len(), asked.missing.len());
        for part in slot.parts() {
            self.look_up(part, asked);
        }
        if asked.missing.len() == n_missing {
            let parts = asked.known.split_off(n_known);
            let whole = merged(&parts);
            self.insert(slot, Arc::clone(&whole), asked.turn);
            asked.known.push(whole);
        }
    }

    fn insert(&mut self, slot: Slot, sheet: SlotRows, turn: QueryNumber) {
        self.remove(slot);
        self.rows += sheet.len();
        self.sheets.insert(slot, (sheet, turn));
    }

    fn remove(&mut self, slot: Slot) {
        if let Some((sheet, _)) = self.sheets.remove(&slot) {
            self.rows -= sheet.len();
        }
    }

    /// Lets go of what was used longest ago.
    fn evict(&mut self) {
        if self.rows <= MAX_ROWS && self.sheets.len() <= MAX_SLOTS {
            return;
        }
        let mut by_use: Vec<(QueryNumber, Slot)> = self
            .sheets
            .iter()
            .map(|(slot, (_, used))| (*used, *slot))
            .collect();
        by_use.sort_unstable();
        for (_, slot) in by_use {
            if self.rows <= MAX_ROWS / 2 && self.sheets.len() <= MAX_SLOTS / 2 {
                return;
            }
            self.remove(slot);
        }
    }
}

// Nothing that holds one of these locks can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn merged(parts: &[SlotRows]) -> SlotRows {
    let mut whole = HashMap::new();
    for (origin, seen) in parts.iter().flat_map(|sheet| sheet.iter()) {
        add(&mut whole, *origin, *seen);
    }
    in_order(whole.into_iter().collect())
}

fn in_order(mut rows: Vec<(u64, Seen)>) -> SlotRows {
    rows.sort_unstable_by_key(|(origin, _)| *origin);
    Arc::from(rows)
}

/// Gives the rows that are wanted: those of a few origins without looking at the others, else all of them. A question about
/// one of two hundred clusters need not go through the whole fleet slot by slot.
fn for_each_wanted(
    sheet: &[(u64, Seen)],
    wanted: Option<&[u64]>,
    mut each: impl FnMut(&(u64, Seen)),
) {
    const FEW: usize = 8;
    let few = wanted.filter(|wanted| wanted.len() < sheet.len() / FEW);
    let Some(few) = few else {
        return sheet.iter().for_each(each);
    };
    for id in few {
        if let Ok(at) = sheet.binary_search_by_key(id, |(origin, _)| *origin)
            && let Some(row) = sheet.get(at)
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
