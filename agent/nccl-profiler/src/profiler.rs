//! Logic of the plugin, on numbers instead of pointers.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::comms::{Comm, Comms, SeqKind};
use crate::emit::Emitter;
use crate::handle::Handle;
use crate::kill_switch::{KillSwitch, OFF_FILE};
use crate::losses::Losses;
use crate::pool::{Operation, Pool};
use crate::record::{RECORD_VERSION, Record, RecordKind};
use crate::system;

/// Time between two records about the slots, nanoseconds.
const ANNOUNCED_EVERY_NS: u64 = 1_000_000_000;

/// State of the plugin, in memory of fixed size.
#[derive(Debug)]
pub(crate) struct Profiler {
    comms: &'static Comms,
    pool: &'static Pool,
    pub(crate) losses: Losses,
    emitter: Emitter,
    kill_switch: KillSwitch,
    pid: AtomicU32,
    /// Time at which the slots of the operations in flight were last announced.
    announced_ns: AtomicU64,
    /// Set once an operation has had no slot, or none is recorded any more: then the slots do not tell what the GPU
    /// is in.
    is_partial: AtomicBool,
}

/// Options from the environment.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Socket for records.
    pub(crate) socket: Option<OsString>,
    /// File that disables the plugin.
    pub(crate) off_file: Option<OsString>,
}

/// Operation as NCCL describes it when it is enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Enqueued {
    /// Collective or transfer.
    pub(crate) kind: RecordKind,
    /// NCCL's sequence number among operations of the same function.
    pub(crate) nccl_seq: u64,
    /// Number of the function.
    pub(crate) function: u32,
    /// Number of elements.
    pub(crate) count: u64,
    /// Number of the element type.
    pub(crate) datatype: u32,
    /// Peer or root.
    pub(crate) peer: i32,
    /// Number of channels; 0 for an operation without times.
    pub(crate) channels: u8,
}

impl Profiler {
    /// Takes tables that are separate statics: they are zero and so take no space in the file.
    pub(crate) const fn new(comms: &'static Comms, pool: &'static Pool) -> Self {
        Self {
            comms,
            pool,
            losses: Losses::new(),
            emitter: Emitter::new(),
            kill_switch: KillSwitch::new(),
            pid: AtomicU32::new(0),
            announced_ns: AtomicU64::new(0),
            is_partial: AtomicBool::new(false),
        }
    }

    /// Applies the options; only the first call counts.
    pub(crate) fn configure(&self, options: Options) {
        let pid = std::process::id();
        if self.pid.swap(pid, Ordering::Relaxed) != pid {
            self.pool.offset_generations(pid.wrapping_mul(0x9e37_79b9));
        }
        let off_file = options.off_file.unwrap_or_else(|| OFF_FILE.into());
        self.kill_switch.set_file(off_file.as_bytes());
        let socket = options.socket.as_ref().map(|path| path.as_bytes());
        self.emitter.open(socket, system::now_ns());
    }

    /// Returns whether the operator has disabled the plugin.
    pub(crate) fn is_off(&self) -> bool {
        self.kill_switch.is_off(system::now_ns())
    }

    /// Adds a new communicator and returns its handle.
    pub(crate) fn join(&self, comm: Comm) -> Option<u64> {
        let Some(handle) = self.comms.join(comm) else {
            Losses::increment(&self.losses.comms);
            self.is_partial.store(true, Ordering::Relaxed);
            return None;
        };
        self.emit(record(RecordKind::Joined, comm));
        Some(handle.to_bits())
    }

    /// Removes a communicator; returns whether it was the last one.
    pub(crate) fn leave(&self, comm: u64) -> bool {
        let Some(comm) = self.comms.leave(comm) else {
            return false;
        };
        self.pool.abandon(comm.id, comm.rank);
        self.emit(record(RecordKind::Left, comm));
        let is_last = self.comms.finish_leave();
        if is_last {
            // NCCL may unload the plugin now, so nothing may stay open.
            self.emitter.close();
        }
        is_last
    }

    /// Adds an enqueued operation; returns its handle, if it will get times.
    pub(crate) fn enqueue(&self, comm: u64, enqueued: &Enqueued) -> Option<u64> {
        let seq_kind = match enqueued.kind {
            RecordKind::Transfer => SeqKind::Transfers,
            RecordKind::Joined | RecordKind::Collective | RecordKind::Left | RecordKind::Slots => {
                SeqKind::Collectives
            }
        };
        let (comm, seq) = self.comms.next_seq(comm, seq_kind)?;
        let is_transfer = enqueued.kind == RecordKind::Transfer;
        if is_transfer && u32::try_from(enqueued.peer) == Ok(comm.rank) {
            // NCCL does not monitor the end of a copy to the same rank, so it would only occupy a
            // slot.
            self.is_partial.store(true, Ordering::Relaxed);
            return None;
        }
        let record = Record {
            seq,
            nccl_seq: enqueued.nccl_seq,
            function: enqueued.function,
            count: enqueued.count,
            datatype: enqueued.datatype,
            peer: enqueued.peer,
            ..record(enqueued.kind, comm)
        };
        if enqueued.channels == 0 {
            // Emitted for its sequence number, so that later operations do not appear to have a
            // gap.
            self.is_partial.store(true, Ordering::Relaxed);
            self.emit(record);
            return None;
        }
        let operation = Operation {
            record,
            channels: enqueued.channels,
        };
        let handle = self.pool.begin(&operation, &self.losses)?;
        Some(handle.to_bits())
    }

    /// Records that a channel has started on an operation; returns the handle of its part.
    pub(crate) fn started(&self, parent: u64, channel: u8, start_ns: u64) -> Option<u64> {
        self.pool
            .started(parent, channel, start_ns)
            .map(Handle::to_bits)
    }

    /// Records that a channel has stopped; returns whether that ended an operation.
    pub(crate) fn stopped(&self, part: u64, stop_ns: u64) -> bool {
        let Some(record) = self.pool.stopped(part, stop_ns) else {
            return false;
        };
        if record.gpu_stop_ns < record.gpu_start_ns {
            Losses::increment(&self.losses.implausible);
        } else {
            self.emit(record);
        }
        true
    }

    fn emit(&self, record: Record) {
        let now_ns = system::now_ns();
        self.emit_at(record, now_ns);
        let announced_ns = self.announced_ns.load(Ordering::Relaxed);
        if now_ns.saturating_sub(announced_ns) >= ANNOUNCED_EVERY_NS {
            self.announced_ns.store(now_ns, Ordering::Relaxed);
            self.announce(now_ns);
        }
    }

    /// Announces that the slots are not kept up to date any more.
    pub(crate) fn withdraw(&self) {
        self.is_partial.store(true, Ordering::Relaxed);
        self.announce(system::now_ns());
    }

    /// Announces where the slots are, or that they do not have all operations.
    fn announce(&self, now_ns: u64) {
        let is_partial = self.is_partial.load(Ordering::Relaxed) || self.losses.operations() > 0;
        let table = self.pool.table();
        let slots = Record {
            kind: RecordKind::Slots as u32,
            count: if is_partial { 0 } else { table.address },
            seq: table.slots,
            nccl_seq: table.slot_bytes,
            ..Record::default()
        };
        self.emit_at(slots, now_ns);
    }

    #[expect(clippy::cast_possible_truncation, reason = "the field wraps around")]
    fn emit_at(&self, record: Record, now_ns: u64) {
        let record = Record {
            version: RECORD_VERSION,
            seen_ns: now_ns,
            lost: self.losses.operations() as u32,
            ..record
        };
        self.emitter.emit(&record, &self.losses);
    }
}

fn record(kind: RecordKind, comm: Comm) -> Record {
    Record {
        kind: kind as u32,
        comm_id: comm.id,
        rank: comm.rank,
        nranks: comm.nranks,
        nth: comm.nth,
        host_ns: system::now_ns(),
        ..Record::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static COMMS: Comms = Comms::new();
    static POOL: Pool = Pool::new();
    static PROFILER: Profiler = Profiler::new(&COMMS, &POOL);

    #[test]
    fn a_transfer_to_the_same_rank_uses_no_slot_and_keeps_its_sequence_number() {
        let comm = Comm {
            id: 9,
            rank: 1,
            nranks: 4,
            nth: 0,
        };
        let comm = PROFILER.join(comm).unwrap();
        let send = |peer: i32| {
            let enqueued = Enqueued {
                kind: RecordKind::Transfer,
                nccl_seq: 0,
                function: 8,
                count: 1,
                datatype: 7,
                peer,
                channels: 1,
            };
            PROFILER.enqueue(comm, &enqueued)
        };
        assert_eq!((send(1), POOL.in_flight()), (None, 0));
        assert!(send(0).is_some() && send(2).is_some());
        assert_eq!(POOL.in_flight(), 2);
        let (_, next) = COMMS.next_seq(comm, SeqKind::Transfers).unwrap();
        assert_eq!((next, PROFILER.losses.operations()), (3, 0));
    }
}
