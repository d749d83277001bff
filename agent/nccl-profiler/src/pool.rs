//! Operations in flight: a lock-free ring of fixed size.
//!
//! Every field is atomic, and a slot is not replaced while a call uses it, so a call with a stale
//! handle, on any thread and at any time, at worst finds nothing.

#[cfg(not(loom))]
use std::mem::offset_of;

use crate::handle::{Handle, Kind};
use crate::losses::Losses;
use crate::occupancy::{FREE, Generations, Occupancy, Use};
use crate::record::Record;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of operations in flight. NCCL itself keeps at most 64 per channel. A model reuses
/// slots soon.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 4096 };

/// Time after which an operation that does not end can be replaced, nanoseconds: operations of an
/// aborted communicator never end.
pub(crate) const ABANDONED_AFTER_NS: u64 = 10_000_000_000;

/// Slots that are tried for an operation.
const MAX_TRIES: usize = 8;

/// Operation as known when it is enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    /// Record, without the GPU times.
    pub(crate) record: Record,
    /// Number of channels it runs on.
    pub(crate) channels: u8,
}

/// Where the slots are in the memory of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) address: u64,
    pub(crate) slots: u64,
    pub(crate) slot_bytes: u64,
}

/// The agent reads the slots of a process that does nothing, by offset.
#[derive(Debug)]
#[repr(C)]
struct Slot {
    occupancy: Occupancy,
    channels: AtomicU32,
    kind: AtomicU32,
    rank: AtomicU32,
    nranks: AtomicU32,
    function: AtomicU32,
    datatype: AtomicU32,
    peer: AtomicU32,
    comm_id: AtomicU64,
    seq: AtomicU64,
    nccl_seq: AtomicU64,
    count: AtomicU64,
    host_ns: AtomicU64,
    start_ns: AtomicU64,
    stop_ns: AtomicU64,
    /// One bit per channel that has stopped.
    stopped: AtomicU64,
}

impl Slot {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value of each slot of a static"
    )]
    const EMPTY: Self = Self {
        occupancy: Occupancy::new(),
        channels: AtomicU32::new(0),
        kind: AtomicU32::new(0),
        rank: AtomicU32::new(0),
        nranks: AtomicU32::new(0),
        function: AtomicU32::new(0),
        datatype: AtomicU32::new(0),
        peer: AtomicU32::new(0),
        comm_id: AtomicU64::new(0),
        seq: AtomicU64::new(0),
        nccl_seq: AtomicU64::new(0),
        count: AtomicU64::new(0),
        host_ns: AtomicU64::new(0),
        start_ns: AtomicU64::new(0),
        stop_ns: AtomicU64::new(0),
        stopped: AtomicU64::new(0),
    };
}

#[cfg(not(loom))]
const _: () = {
    assert!(offset_of!(Slot, start_ns) == 80 && offset_of!(Slot, stopped) == 96);
    assert!(size_of::<Slot>() == 104);
};

/// Ring of operations.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: [Slot; SLOTS],
    next: AtomicU32,
    generations: Generations,
}

impl Pool {
    #[expect(
        clippy::large_stack_arrays,
        reason = "only called to initialize statics, at compile time"
    )]
    pub(crate) const fn new() -> Self {
        Self {
            slots: [const { Slot::EMPTY }; SLOTS],
            next: AtomicU32::new(0),
            generations: Generations::new(),
        }
    }

    /// Returns address, number and size of the slots.
    pub(crate) fn table(&self) -> Table {
        Table {
            address: self.slots.as_ptr().addr() as u64,
            slots: SLOTS as u64,
            slot_bytes: size_of::<Slot>() as u64,
        }
    }

    /// Offsets the generations, so that handles of other processes do not match.
    pub(crate) fn offset_generations(&self, offset: u32) {
        self.generations.skip(offset);
    }

    /// Adds an operation; none when no slot is free.
    pub(crate) fn begin(&self, operation: &Operation, losses: &Losses) -> Option<Handle> {
        for _ in 0..MAX_TRIES {
            let ticket = self.next.fetch_add(1, Ordering::Relaxed);
            let index = usize::try_from(ticket).unwrap_or(0) % SLOTS;
            let slot = self.slots.get(index)?;
            let Some(occupant) = slot.occupancy.occupant() else {
                continue;
            };
            let is_free = occupant == FREE;
            if !is_free && !is_abandoned(slot, operation.record.host_ns) {
                continue;
            }
            // If the occupant ends or another thread is faster, the slot is not available.
            if !slot.occupancy.claim(occupant) {
                continue;
            }
            if !is_free {
                Losses::increment(&losses.abandoned);
            }
            let generation = self.generations.next();
            slot.fill(operation);
            slot.occupancy.publish(generation);
            return Some(Handle {
                generation,
                slot: u16::try_from(index).ok()?,
                channel: 0,
                kind: Kind::Operation,
            });
        }
        Losses::increment(&losses.pool_full);
        None
    }

    /// Records that a channel has started on an operation.
    pub(crate) fn started(&self, parent: u64, channel: u8, start_ns: u64) -> Option<Handle> {
        let handle = Handle::from_bits(parent, Kind::Operation)?;
        let (slot, _in_use) = self.enter(handle)?;
        // NCCL gives some channels the time of an earlier operation
        // (agent/docs/nccl-profiler.md). Such a time is too early, never too late.
        slot.start_ns.fetch_max(start_ns, Ordering::Relaxed);
        Some(Handle {
            channel,
            kind: Kind::Channel,
            ..handle
        })
    }

    /// Records that a channel has stopped; returns the complete record after the last channel.
    pub(crate) fn stopped(&self, bits: u64, stop_ns: u64) -> Option<Record> {
        let handle = Handle::from_bits(bits, Kind::Channel)?;
        let (slot, in_use) = self.enter(handle)?;
        slot.stop_ns.fetch_max(stop_ns, Ordering::Relaxed);
        let channel = 1_u64.checked_shl(u32::from(handle.channel))?;
        let before = slot.stopped.fetch_or(channel, Ordering::AcqRel);
        let n_stopped = (before | channel).count_ones();
        if before & channel != 0 || n_stopped != slot.channels.load(Ordering::Relaxed) {
            return None;
        }
        let record = slot.record();
        in_use.remove_occupant().then_some(record)
    }

    /// Removes the operations of a communicator that ends: those that were aborted never end.
    pub(crate) fn abandon(&self, comm_id: u64, rank: u32) {
        for slot in &self.slots {
            let Some(occupant) = slot.occupancy.occupant().filter(|own| *own != FREE) else {
                continue;
            };
            let is_own = slot.comm_id.load(Ordering::Relaxed) == comm_id
                && slot.rank.load(Ordering::Relaxed) == rank;
            if is_own && slot.occupancy.claim(occupant) {
                slot.occupancy.publish(FREE);
            }
        }
    }

    fn enter(&self, handle: Handle) -> Option<(&Slot, Use<'_>)> {
        let slot = self.slots.get(usize::from(handle.slot))?;
        Some((slot, slot.occupancy.enter(handle.generation)?))
    }

    /// Returns the number of operations in flight.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        let is_taken = |slot: &&Slot| !slot.occupancy.is_free();
        self.slots.iter().filter(is_taken).count()
    }
}

fn is_abandoned(slot: &Slot, now_ns: u64) -> bool {
    now_ns.saturating_sub(slot.host_ns.load(Ordering::Relaxed)) > ABANDONED_AFTER_NS
}

impl Slot {
    fn fill(&self, operation: &Operation) {
        let Operation { record, channels } = *operation;
        let ints = [
            (&self.channels, u32::from(channels)),
            (&self.kind, record.kind),
            (&self.rank, record.rank),
            (&self.nranks, record.nranks),
            (&self.function, record.function),
            (&self.datatype, record.datatype),
            (&self.peer, record.peer.cast_unsigned()),
        ];
        let longs = [
            (&self.comm_id, record.comm_id),
            (&self.seq, record.seq),
            (&self.nccl_seq, record.nccl_seq),
            (&self.count, record.count),
            (&self.host_ns, record.host_ns),
            (&self.start_ns, 0),
            (&self.stop_ns, 0),
            (&self.stopped, 0),
        ];
        for (field, value) in ints {
            field.store(value, Ordering::Relaxed);
        }
        for (field, value) in longs {
            field.store(value, Ordering::Relaxed);
        }
    }

    fn record(&self) -> Record {
        let int = |field: &AtomicU32| field.load(Ordering::Relaxed);
        let long = |field: &AtomicU64| field.load(Ordering::Relaxed);
        Record {
            kind: int(&self.kind),
            comm_id: long(&self.comm_id),
            seq: long(&self.seq),
            nccl_seq: long(&self.nccl_seq),
            count: long(&self.count),
            host_ns: long(&self.host_ns),
            gpu_start_ns: long(&self.start_ns),
            gpu_stop_ns: long(&self.stop_ns),
            rank: int(&self.rank),
            nranks: int(&self.nranks),
            function: int(&self.function),
            datatype: int(&self.datatype),
            peer: int(&self.peer).cast_signed(),
            channels: int(&self.channels),
            ..Record::default()
        }
    }
}

#[cfg(test)]
mod tests;
