//! Who reported when, kept in slots of time.
//!
//! Every answer says how much of the cluster it rests on, and so asks who reported in its window: an hour of a large fleet is
//! a hundred million events. What was counted once is kept, slot by slot, until something is stored or deleted in the slot;
//! then only the present slots and the ends of the window are counted anew. Answers are the same with and without.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::ids::ClusterId;
use crate::store::Coverage;
use crate::store::duckdb::EngineResult;
use crate::store::duckdb::dictionary::Dictionary;
use crate::store::duckdb::reader::Reader;
use crate::store::duckdb::rows::presence::{self, Seen};
use crate::store::reporting::{Count, Reporting};
use crate::units::{Nanos, Window};

mod slot;

use slot::{Slot, stretches, tiles};

/// Rows of all slots that are kept at most, of some 40 bytes each.
const MAX_ROWS: usize = 3_000_000;

/// Slots that one window may consist of: longer windows, some of which are full of wrong clocks, are counted as a whole.
const MAX_SLOTS: usize = 10_000;

/// Who reported in one slot: ids of origins, each once.
type Sheet = Arc<[(u64, Seen)]>;

/// What is kept of who reported when.
#[derive(Debug, Default)]
pub(super) struct Presence(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    sheets: HashMap<Slot, (Sheet, Turn)>,
    rows: usize,
    /// Counts the questions; what was used longest ago goes first.
    turn: Turn,
    /// What each question is told that is being answered.
    changed: Vec<Weak<Changed>>,
}

type Turn = u64;

/// Finest slots in which something has changed since a question was asked.
type Changed = Mutex<BTreeSet<Slot>>;

/// What is known of a window, and what has to be counted.
#[derive(Debug)]
struct Asked {
    turn: Turn,
    known: Vec<Sheet>,
    missing: BTreeSet<Slot>,
    changed: Arc<Changed>,
}

/// One row per job, node and rank that reported in the window.
pub(super) fn coverage(
    reader: &Reader,
    (dictionary, presence): (&Dictionary, &Presence),
    (cluster, window): (Option<&ClusterId>, Window),
) -> EngineResult<Vec<Coverage>> {
    // Taken before anything is read, so that all that the rows refer to is kept.
    let _lease = dictionary.lease();
    let mut seen: HashMap<u64, Seen> = HashMap::new();
    let mut add = |rows: &[(u64, Seen)]| {
        for (origin, more) in rows {
            let known = seen.entry(*origin).or_insert(*more);
            *known = known.with(*more);
        }
    };
    let (slots, ends) = tiles(window);
    if slots.len() > MAX_SLOTS {
        let all = presence::Stretch::whole(window);
        presence::count(reader, all, |_, origin, seen| add(&[(origin, seen)]))?;
    } else {
        let asked = presence.ask(&slots);
        asked.known.iter().for_each(|sheet| add(sheet));
        let mut counted: BTreeMap<Slot, Vec<(u64, Seen)>> = BTreeMap::new();
        for stretch in stretches(&asked.missing, &ends) {
            presence::count(reader, stretch, |begin, origin, seen| {
                add(&[(origin, seen)]);
                let slot = Slot::at(begin, stretch.slot_nanos);
                counted.entry(slot).or_default().push((origin, seen));
            })?;
        }
        presence.keep(asked, counted);
    }
    let mut reporting = Reporting::default();
    for (origin, seen) in seen {
        let origin = dictionary.origin(origin);
        let origin = origin.filter(|origin| cluster.is_none_or(|asked| *asked == origin.cluster));
        if let Some(origin) = origin {
            reporting.add(Count {
                origin,
                first: seen.first,
                last: seen.last,
                has_host_evidence: seen.has_host_evidence,
            });
        }
    }
    Ok(reporting.into_rows())
}

impl Presence {
    /// Forgets the slots that these instants lie in. Called after the commit that changed something there and before
    /// anybody is told of it.
    pub(super) fn touch(&self, instants: impl Iterator<Item = Nanos>) {
        let mut touched: Vec<Slot> = Vec::new();
        for instant in instants {
            let slot = Slot::finest(instant);
            // Neighbours mostly lie in one slot.
            if touched.last() != Some(&slot) {
                touched.push(slot);
            }
        }
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

    /// What is kept of these slots.
    fn ask(&self, slots: &[Slot]) -> Asked {
        let mut kept = lock(&self.0);
        kept.turn += 1;
        let mut asked = Asked {
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
    fn keep(&self, asked: Asked, mut counted: BTreeMap<Slot, Vec<(u64, Seen)>>) {
        let mut kept = lock(&self.0);
        let changed = lock(&asked.changed);
        for slot in asked.missing {
            if !changed.iter().any(|inner| slot.contains(*inner)) {
                let rows = counted.remove(&slot).unwrap_or_default();
                kept.insert(slot, Arc::from(rows), asked.turn);
            }
        }
        kept.make_room();
    }
}

impl Kept {
    /// Adds what is known of a slot and what is missing. A slot of which parts are known is taken part by part.
    fn look_up(&mut self, slot: Slot, asked: &mut Asked) {
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

    fn insert(&mut self, slot: Slot, sheet: Sheet, turn: Turn) {
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
    fn make_room(&mut self) {
        if self.rows <= MAX_ROWS && self.sheets.len() <= 2 * MAX_SLOTS {
            return;
        }
        let mut by_use: Vec<(Turn, Slot)> = self
            .sheets
            .iter()
            .map(|(slot, (_, used))| (*used, *slot))
            .collect();
        by_use.sort_unstable();
        for (_, slot) in by_use {
            if self.rows <= MAX_ROWS / 2 && self.sheets.len() <= MAX_SLOTS {
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

fn merged(parts: &[Sheet]) -> Sheet {
    let mut whole: HashMap<u64, Seen> = HashMap::new();
    for (origin, seen) in parts.iter().flat_map(|sheet| sheet.iter()) {
        let known = whole.entry(*origin).or_insert(*seen);
        *known = known.with(*seen);
    }
    whole.into_iter().collect()
}

#[cfg(test)]
mod tests;
