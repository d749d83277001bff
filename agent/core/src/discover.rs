//! Mapping from pointers in a traced process to communicators.

mod preexisting;

use std::collections::HashMap;

use crate::discover::preexisting::{CommMatcher, Match, Member};
use crate::event::{Call, CallKind, CommInit, CommState, Entered, GpuOperation, Operation};
use crate::signal::CommId;

/// Maximum number of pointers per process: far more than a job has communicators.
const MAX_POINTERS: usize = 65_536;

/// Maximum number of channels per process: a rank of a pipeline has a few.
const MAX_CHANNELS: usize = 64;

/// Index of a communicator within its process, in order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommIndex(usize);

impl CommIndex {
    /// Returns the position in per-communicator tables.
    pub fn position(self) -> usize {
        self.0
    }

    /// Returns the communicators of such a table with their indexes.
    pub fn enumerate(comms: &[Comm]) -> impl Iterator<Item = (Self, &Comm)> {
        let numbered = comms.iter().enumerate();
        numbered.map(|(position, comm)| (Self(position), comm))
    }
}

/// Communicator as seen by one of its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comm {
    /// Identity, equal on all ranks.
    pub id: CommId,
    /// Rank of the process in the communicator.
    pub rank: u32,
    /// Number of ranks.
    pub nranks: u32,
    /// Communicator of which this is a channel, if it is one.
    pub parent: Option<CommIndex>,
}

impl Comm {
    /// Returns the communicator of a GPU operation.
    fn from_operation(operation: &GpuOperation) -> Self {
        Self {
            id: CommId::new(operation.comm_id),
            rank: operation.rank,
            nranks: operation.nranks,
            parent: None,
        }
    }
}

/// Communicators of one process.
#[derive(Debug, Default)]
pub struct CommTable {
    comms: Vec<Comm>,
    by_pointer: HashMap<u64, PointerState>,
    pending_inits: Vec<PendingInit>,
    channels: HashMap<(CommIndex, u32, u32), CommIndex>,
    matcher: CommMatcher,
    adopted: HashMap<Member, CommIndex>,
    saw_unknown_comm: bool,
    are_transfers_recorded: bool,
    unknown_ops: u64,
}

/// Communicator whose pointer was determined from rows of the profiler plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdoptedComm {
    /// The communicator.
    pub index: CommIndex,
    /// Number of its next collective, where the rows report it; the source counts the collectives
    /// of communicators whose creation was seen.
    pub next: Option<u64>,
}

/// Meaning of a pointer.
#[derive(Debug, Clone, Copy)]
enum PointerState {
    /// Communicator whose creation was seen.
    Known(CommIndex),
    /// Communicator of one rank.
    SingleRank,
    /// Communicator created before tracing began, adopted from reports of the profiler plugin.
    Adopted(CommIndex),
    /// Communicator created before tracing began.
    ///
    /// The number of operations before tracing is unknown, so its operations have no sequence
    /// numbers and no counterparts on other ranks: they are counted and skipped until the
    /// communicator is adopted. The pointer is kept; otherwise the next new communicator would be
    /// matched to it.
    Unknown,
}

#[derive(Debug)]
struct PendingInit {
    tid: u32,
    comm: Option<CommIndex>,
}

impl CommTable {
    /// Records the creation of a communicator; the next new pointer belongs to it, unless the
    /// source knows its pointer.
    ///
    /// Communicators of one rank are matched to their pointer, too, so that the next one is not
    /// confused with them, but nothing is reported about them.
    pub fn record_init(&mut self, tid: u32, init: CommInit) {
        let comm = (init.nranks > 1 && init.rank < init.nranks).then(|| {
            let id = CommId::new(init.unique_id);
            self.comms.push(Comm {
                id,
                rank: init.rank,
                nranks: init.nranks,
                parent: None,
            });
            CommIndex(self.comms.len() - 1)
        });
        match init.comm {
            Some(pointer) => {
                self.matcher.forget(pointer);
                self.set_pointer(
                    pointer,
                    comm.map_or(PointerState::SingleRank, PointerState::Known),
                );
            }
            None => self.pending_inits.push(PendingInit { tid, comm }),
        }
    }

    /// Returns the channel on which rank `from` of a communicator sends to its rank `to`, one of
    /// which is this process. Both ends number its transfers alike, so it is tracked as a
    /// communicator of two.
    pub fn channel(&mut self, parent: CommIndex, from: u32, to: u32) -> Option<CommIndex> {
        let key = (parent, from, to);
        if let Some(known) = self.channels.get(&key) {
            return Some(*known);
        }
        let comm = *self.comms.get(parent.position())?;
        let is_possible = from != to && from.max(to) < comm.nranks;
        if !is_possible || self.channels.len() >= MAX_CHANNELS {
            return None;
        }
        let mut bytes = comm.id.to_bits().to_le_bytes().to_vec();
        bytes.extend_from_slice(&from.to_le_bytes());
        bytes.extend_from_slice(&to.to_le_bytes());
        self.comms.push(Comm {
            id: CommId::new(xxhash_rust::xxh64::xxh64(&bytes, 0)),
            rank: u32::from(comm.rank == to),
            nranks: 2,
            parent: Some(parent),
        });
        let index = CommIndex(self.comms.len() - 1);
        self.channels.insert(key, index);
        Some(index)
    }

    /// Removes a pointer, which may be reused for another communicator, and returns the removed
    /// communicator if it is known.
    pub fn remove(&mut self, pointer: u64) -> Option<CommIndex> {
        self.matcher.forget(pointer);
        match self.by_pointer.remove(&pointer)? {
            PointerState::Known(index) | PointerState::Adopted(index) => Some(index),
            PointerState::SingleRank | PointerState::Unknown => None,
        }
    }

    /// Returns the communicator of a pointer that a thread just used.
    pub fn find(&mut self, tid: u32, pointer: u64) -> Option<CommIndex> {
        let state = match self.by_pointer.get(&pointer) {
            Some(known) => *known,
            None => self.resolve_pointer(tid, pointer),
        };
        match state {
            PointerState::Known(index) | PointerState::Adopted(index) => Some(index),
            PointerState::SingleRank => None,
            PointerState::Unknown => {
                self.saw_unknown_comm = true;
                None
            }
        }
    }

    /// Counts an operation whose communicator was not found, unless that has one rank or the profiler plugin
    /// records the operation.
    pub fn count_unknown(&mut self, operation: &Operation) {
        let state = self.by_pointer.get(&operation.comm);
        let is_unknown = !matches!(state, Some(PointerState::SingleRank));
        let is_recorded = self.are_transfers_recorded && !operation.op.is_collective();
        self.unknown_ops += u64::from(is_unknown && !is_recorded);
    }

    /// Records a call before it takes effect, so that a communicator older than the agent can be
    /// adopted.
    pub fn record_call(&mut self, call: &Call) {
        if let CallKind::Operation(operation) = &call.kind {
            let return_ns = Some(call.return_ns());
            self.matcher
                .record_call(call.tid, call.ts_ns, return_ns, operation);
        }
    }

    /// Records the entry of a call that has not returned yet.
    pub fn record_entry(&mut self, entered: &Entered) {
        if let CallKind::Operation(operation) = &entered.kind {
            self.matcher
                .record_call(entered.tid, entered.ts_ns, None, operation);
        }
    }

    /// Records the return of such a call.
    pub fn record_return(&mut self, call: &Call) {
        if matches!(call.kind, CallKind::Operation(_)) {
            self.matcher
                .record_return(call.tid, call.ts_ns, call.return_ns());
        }
    }

    /// Returns the last called collective with its number if its communicator was adopted; `None`
    /// if NCCL does not number it.
    pub fn assign_seq(&mut self, operation: Operation) -> Option<Operation> {
        if !matches!(
            self.by_pointer.get(&operation.comm),
            Some(PointerState::Adopted(_))
        ) {
            return Some(operation);
        }
        let number = self.matcher.number(&operation);
        self.unknown_ops += u64::from(number.is_none());
        Some(Operation {
            seq: Some(number?),
            ..operation
        })
    }

    /// Evaluates a row on an unknown or adopted communicator and returns the communicator when rows
    /// newly agree on one.
    pub fn adopt(&mut self, operation: &GpuOperation) -> Option<AdoptedComm> {
        let found = self.matcher.observe_row(operation)?;
        self.adopt_match(found, Comm::from_operation(operation))
    }

    /// Adopts the communicator of an operation that a graph replays, for which no call is known.
    pub fn adopt_replayed(&mut self, operation: &GpuOperation) -> Option<AdoptedComm> {
        Some(AdoptedComm {
            index: self.adopted_index(Comm::from_operation(operation))?,
            next: Some(operation.seq),
        })
    }

    /// Evaluates the state of a communicator in memory and returns the communicator when states
    /// newly agree on one.
    pub fn adopt_state(&mut self, state: &CommState) -> Option<AdoptedComm> {
        let found = self.matcher.observe_state(state)?;
        let comm = Comm {
            id: CommId::new(state.comm_id),
            rank: state.rank,
            nranks: state.nranks,
            parent: None,
        };
        self.adopt_match(found, comm)
    }

    fn adopt_match(&mut self, found: Match, comm: Comm) -> Option<AdoptedComm> {
        let next = Some(found.next);
        match self.by_pointer.get(&found.pointer).copied() {
            Some(PointerState::Known(index)) => {
                let known = self.comms.get(index.position())?;
                let is_alike = (known.rank, known.nranks) == (comm.rank, comm.nranks);
                is_alike.then_some(AdoptedComm { index, next: None })
            }
            Some(PointerState::Adopted(index)) => Some(AdoptedComm { index, next }),
            Some(PointerState::SingleRank) | None => None,
            Some(PointerState::Unknown) => {
                let index = self.adopted_index(comm)?;
                self.set_pointer(found.pointer, PointerState::Adopted(index));
                Some(AdoptedComm { index, next })
            }
        }
    }

    /// Returns whether a communicator was adopted.
    pub fn is_adopted(&self, index: CommIndex) -> bool {
        self.adopted.values().any(|adopted| *adopted == index)
    }

    /// Returns whether the creation of every used communicator was seen.
    pub fn is_complete(&self) -> bool {
        !self.saw_unknown_comm
    }

    /// Invalidates the numbers of adopted communicators until rows report them again, since calls
    /// may be missing. Collectives of communicators whose creation was seen are counted by the
    /// source.
    pub fn invalidate_adopted(&mut self) {
        for pointer in self.matcher.invalidate() {
            if matches!(
                self.by_pointer.get(&pointer),
                Some(PointerState::Adopted(_))
            ) {
                self.set_pointer(pointer, PointerState::Unknown);
            }
        }
    }

    /// Returns the index of an adopted communicator, allocating one at its first adoption.
    fn adopted_index(&mut self, comm: Comm) -> Option<CommIndex> {
        if comm.nranks < 2 || comm.rank >= comm.nranks {
            return None;
        }
        let member = (comm.id.to_bits(), comm.rank);
        if let Some(index) = self.adopted.get(&member) {
            return Some(*index);
        }
        if self.adopted.len() >= MAX_POINTERS {
            return None;
        }
        self.comms.push(comm);
        let index = CommIndex(self.comms.len() - 1);
        self.adopted.insert(member, index);
        Some(index)
    }

    fn resolve_pointer(&mut self, tid: u32, pointer: u64) -> PointerState {
        let state = match self.take_pending_init(tid) {
            Some(pending) => pending
                .comm
                .map_or(PointerState::SingleRank, PointerState::Known),
            None => PointerState::Unknown,
        };
        self.set_pointer(pointer, state);
        state
    }

    fn set_pointer(&mut self, pointer: u64, state: PointerState) {
        if self.by_pointer.len() < MAX_POINTERS || self.by_pointer.contains_key(&pointer) {
            self.by_pointer.insert(pointer, state);
        }
    }

    /// Returns the communicators with their indexes.
    pub fn indexed(&self) -> impl Iterator<Item = (CommIndex, &Comm)> {
        CommIndex::enumerate(&self.comms)
    }

    /// Returns the communicators by index.
    pub fn comms(&self) -> &[Comm] {
        &self.comms
    }

    /// Notes that the profiler plugin records the transfers of communicators that were created before tracing
    /// began: the job is judged by its records.
    pub fn note_recorded_transfers(&mut self) {
        self.are_transfers_recorded = true;
    }

    /// Returns the number of operations on communicators that were created before tracing began and
    /// not adopted by then, without transfers that the profiler plugin records.
    pub fn unknown_ops(&self) -> u64 {
        self.unknown_ops
    }

    // Frameworks create most communicators just before their first operation on the same thread, so
    // the thread is a better hint than the order.
    fn take_pending_init(&mut self, tid: u32) -> Option<PendingInit> {
        if self.pending_inits.is_empty() {
            return None;
        }
        let at = self
            .pending_inits
            .iter()
            .position(|pending| pending.tid == tid)
            .unwrap_or(0);
        Some(self.pending_inits.remove(at))
    }
}

#[cfg(test)]
mod tests;
