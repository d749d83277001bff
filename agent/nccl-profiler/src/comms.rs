//! Communicators of the process, in a table of fixed size.

use crate::handle::{Handle, Kind};
use crate::occupancy::{FREE, Generations, Occupancy, Use};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of communicators at a time. A rank of a large job has some dozens.
pub(crate) const COMMS: usize = if cfg!(loom) { 2 } else { 1024 };

/// Communicator as its rank sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Comm {
    /// NCCL's hash of the communicator.
    pub(crate) id: u64,
    /// Rank of the process in the communicator.
    pub(crate) rank: u32,
    /// Number of ranks.
    pub(crate) nranks: u32,
    /// Number of communicators with this rank and size joined before; set by `join`.
    pub(crate) nth: u32,
}

/// Sequence that an operation is numbered in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeqKind {
    /// Collectives.
    Collectives,
    /// Transfers.
    Transfers,
}

#[derive(Debug)]
struct Slot {
    occupancy: Occupancy,
    id: AtomicU64,
    rank: AtomicU32,
    nranks: AtomicU32,
    nth: AtomicU32,
    collectives: AtomicU64,
    transfers: AtomicU64,
}

impl Slot {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value of each slot of a static"
    )]
    const EMPTY: Self = Self {
        occupancy: Occupancy::new(),
        id: AtomicU64::new(0),
        rank: AtomicU32::new(0),
        nranks: AtomicU32::new(0),
        nth: AtomicU32::new(0),
        collectives: AtomicU64::new(0),
        transfers: AtomicU64::new(0),
    };
}

/// Table of communicators.
#[derive(Debug)]
pub(crate) struct Comms {
    slots: [Slot; COMMS],
    generations: Generations,
    /// Communicators that have joined and whose last record has not been emitted.
    n_joined: AtomicU32,
    join_counts: [JoinCount; MAX_JOIN_COUNTS],
}

/// Number of times that a rank and size were joined.
#[derive(Debug)]
struct JoinCount {
    /// Size and rank; 0 when unused.
    key: AtomicU64,
    joined: AtomicU32,
}

/// Number of distinct pairs of rank and size; a process has a handful.
const MAX_JOIN_COUNTS: usize = if cfg!(loom) { 2 } else { 256 };

impl Comms {
    #[expect(
        clippy::large_stack_arrays,
        reason = "only called to initialize statics, at compile time"
    )]
    pub(crate) const fn new() -> Self {
        Self {
            slots: [const { Slot::EMPTY }; COMMS],
            generations: Generations::new(),
            n_joined: AtomicU32::new(0),
            join_counts: [const {
                JoinCount {
                    key: AtomicU64::new(0),
                    joined: AtomicU32::new(0),
                }
            }; MAX_JOIN_COUNTS],
        }
    }

    /// Adds a communicator; none when the table is full.
    pub(crate) fn join(&self, comm: Comm) -> Option<Handle> {
        let mut slots = (0_u16..).zip(&self.slots);
        let (index, slot) = slots.find(|(_, slot)| slot.occupancy.claim(FREE))?;
        self.n_joined.fetch_add(1, Ordering::Relaxed);
        let generation = self.generations.next();
        slot.id.store(comm.id, Ordering::Relaxed);
        slot.rank.store(comm.rank, Ordering::Relaxed);
        slot.nranks.store(comm.nranks, Ordering::Relaxed);
        slot.nth.store(self.nth(comm), Ordering::Relaxed);
        slot.collectives.store(0, Ordering::Relaxed);
        slot.transfers.store(0, Ordering::Relaxed);
        slot.occupancy.publish(generation);
        Some(Handle {
            generation,
            slot: index,
            channel: 0,
            kind: Kind::Comm,
        })
    }

    /// Number of communicators with this rank and size joined before; `u32::MAX` when there are too
    /// many pairs to count.
    fn nth(&self, comm: Comm) -> u32 {
        let key = u64::from(comm.nranks) << 32 | u64::from(comm.rank);
        for count in &self.join_counts {
            let known = count
                .key
                .compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire);
            if known.is_ok() || known == Err(key) {
                return count.joined.fetch_add(1, Ordering::Relaxed);
            }
        }
        u32::MAX
    }

    /// Returns a communicator and the sequence number of its next operation.
    pub(crate) fn next_seq(&self, bits: u64, seq_kind: SeqKind) -> Option<(Comm, u64)> {
        let (slot, _in_use) = self.enter(bits)?;
        let counter = match seq_kind {
            SeqKind::Collectives => &slot.collectives,
            SeqKind::Transfers => &slot.transfers,
        };
        Some((slot.comm(), counter.fetch_add(1, Ordering::Relaxed)))
    }

    /// Removes a communicator and returns it. After its last record, call [`Self::finish_leave`].
    pub(crate) fn leave(&self, bits: u64) -> Option<Comm> {
        let (slot, in_use) = self.enter(bits)?;
        let comm = slot.comm();
        in_use.remove_occupant().then_some(comm)
    }

    /// Counts a removed communicator; returns whether it was the last one. A count, because two
    /// threads that look through the table may each miss what the other has just removed.
    pub(crate) fn finish_leave(&self) -> bool {
        self.n_joined.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn enter(&self, bits: u64) -> Option<(&Slot, Use<'_>)> {
        let handle = Handle::from_bits(bits, Kind::Comm)?;
        let slot = self.slots.get(usize::from(handle.slot))?;
        Some((slot, slot.occupancy.enter(handle.generation)?))
    }
}

impl Slot {
    fn comm(&self) -> Comm {
        Comm {
            id: self.id.load(Ordering::Relaxed),
            rank: self.rank.load(Ordering::Relaxed),
            nranks: self.nranks.load(Ordering::Relaxed),
            nth: self.nth.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMM: Comm = Comm {
        id: 9,
        rank: 1,
        nranks: 4,
        nth: 0,
    };

    #[test]
    fn operations_are_numbered_per_communicator_and_transfers_separately() {
        static COMMS_HERE: Comms = Comms::new();
        let comms = &COMMS_HERE;
        let [a, b] = [(); 2].map(|()| comms.join(COMM).unwrap().to_bits());
        let seq = |bits, seq_kind| comms.next_seq(bits, seq_kind).unwrap().1;
        assert_eq!(seq(a, SeqKind::Collectives), 0);
        assert_eq!(seq(a, SeqKind::Collectives), 1);
        assert_eq!(seq(b, SeqKind::Collectives), 0);
        assert_eq!(seq(a, SeqKind::Transfers), 0);
    }

    #[test]
    fn a_removed_communicator_is_not_found_and_its_slot_is_reused() {
        static COMMS_HERE: Comms = Comms::new();
        let comms = &COMMS_HERE;
        let first = comms.join(COMM).unwrap();
        assert_eq!(comms.leave(first.to_bits()), Some(COMM));
        assert_eq!(comms.leave(first.to_bits()), None);
        let second = comms.join(COMM).unwrap();
        assert_eq!(second.slot, first.slot);
        assert_eq!(comms.next_seq(first.to_bits(), SeqKind::Collectives), None);
        assert!(
            comms
                .next_seq(second.to_bits(), SeqKind::Collectives)
                .is_some()
        );
    }

    #[test]
    fn communicators_of_equal_rank_and_size_are_counted_in_join_order() {
        static COMMS_HERE: Comms = Comms::new();
        let nth = |comm: Comm| {
            let handle = COMMS_HERE.join(comm).unwrap().to_bits();
            COMMS_HERE.leave(handle).unwrap().nth
        };
        assert_eq!((nth(COMM), nth(COMM)), (0, 1));
        assert_eq!(nth(Comm { rank: 2, ..COMM }), 0);
        assert_eq!(nth(COMM), 2);
    }

    #[test]
    fn a_full_table_accepts_no_communicator() {
        static COMMS_HERE: Comms = Comms::new();
        let comms = &COMMS_HERE;
        for _ in 0..COMMS {
            assert!(comms.join(COMM).is_some());
        }
        assert_eq!(comms.join(COMM), None);
    }
}
