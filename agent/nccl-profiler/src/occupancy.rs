//! Occupancy of a slot: by which generation, and by how many calls that use it now.
//!
//! Both are one atomic number, so a slot gets another occupant only while no call uses it. A call
//! with a stale handle finds nothing, and never changes what belongs to the next occupant.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Generation of a free slot.
pub(crate) const FREE: u32 = 0;
/// Generation of a slot that is being filled.
const FILLING: u32 = u32::MAX;

/// Generation in the high half, number of calls in the low half.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Occupancy(AtomicU64);

impl Occupancy {
    /// Creates a free slot.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the generation that has the slot, or [`FREE`]; none while it is filled.
    pub(crate) fn occupant(&self) -> Option<u32> {
        let generation = generation(self.0.load(Ordering::Acquire));
        (generation != FILLING).then_some(generation)
    }

    /// Takes the slot, to fill it, from an occupant that is still there and that no call uses.
    pub(crate) fn claim(&self, occupant: u32) -> bool {
        let (from, to) = (unused(occupant), unused(FILLING));
        let claimed = self
            .0
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok()
    }

    /// Hands the filled slot to its occupant.
    pub(crate) fn publish(&self, generation: u32) {
        self.0.store(unused(generation), Ordering::Release);
    }

    /// Uses the slot; none unless this generation has it.
    pub(crate) fn enter(&self, wanted: u32) -> Option<Use<'_>> {
        if wanted == FREE || wanted == FILLING {
            return None;
        }
        let one_more = |state: u64| (generation(state) == wanted).then_some(state.wrapping_add(1));
        let entered = self
            .0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more);
        // Built only now: dropping it counts down.
        entered.ok().map(|_| Use {
            occupancy: self,
            generation: wanted,
        })
    }

    /// Returns whether the slot has no occupant.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        generation(self.0.load(Ordering::Relaxed)) == FREE
    }
}

/// Use of a slot by a call.
#[derive(Debug)]
pub(crate) struct Use<'a> {
    occupancy: &'a Occupancy,
    generation: u32,
}

impl Use<'_> {
    /// Removes the occupant; returns whether this call did. The slot is free after its last use.
    pub(crate) fn remove_occupant(&self) -> bool {
        let without = |state: u64| {
            let is_mine = generation(state) == self.generation;
            is_mine.then_some(state.wrapping_sub(unused(self.generation)))
        };
        let removed = self
            .occupancy
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, without);
        removed.is_ok()
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        // What this call read and wrote comes before what the next occupant writes.
        self.occupancy.0.fetch_sub(1, Ordering::Release);
    }
}

/// Returns the state of a slot that no call uses.
fn unused(generation: u32) -> u64 {
    u64::from(generation) << 32
}

fn generation(state: u64) -> u32 {
    u32::try_from(state >> 32).unwrap_or(FILLING)
}

/// Generations of the occupants of a table.
#[derive(Debug)]
pub(crate) struct Generations(AtomicU32);

impl Generations {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Skips generations, so that handles of other processes do not match.
    pub(crate) fn skip(&self, count: u32) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the generation of the next occupant.
    pub(crate) fn next(&self) -> u32 {
        loop {
            let next = self.0.fetch_add(1, Ordering::Relaxed);
            if next != FREE && next != FILLING {
                return next;
            }
        }
    }
}
