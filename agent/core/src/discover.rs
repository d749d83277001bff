//! Which communicator a pointer in a traced process stands for.

mod preexisting;

use std::collections::HashMap;

use crate::discover::preexisting::{CommMatcher, Match, Member};
use crate::event::{Call, CallKind, CommInit, CommState, Entered, GpuOperation, Operation};
use crate::signal::CommId;

/// Most pointers that are told apart in one process: far more than a job has communicators.
const MAX_POINTERS: usize = 65_536;

/// Most channels that are followed in one process: a rank of a pipeline has a few.
const MAX_CHANNELS: usize = 64;

/// Index of a communicator within its process, in the order in which the process made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommIndex(usize);

impl CommIndex {
    /// Position in per-communicator tables.
    pub fn position(self) -> usize {
        self.0
    }

    /// The communicators of such a table with their index.
    pub fn enumerate(comms: &[Comm]) -> impl Iterator<Item = (Self, &Comm)> {
        let numbered = comms.iter().enumerate();
        numbered.map(|(position, comm)| (Self(position), comm))
    }
}

/// A communicator as one of its ranks sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comm {
    /// Identity, equal on all its ranks.
    pub id: CommId,
    /// The process's rank within it.
    pub rank: u32,
    /// Its ranks.
    pub nranks: u32,
    /// The communicator of which this is a channel, if it is one.
    pub parent: Option<CommIndex>,
}

impl Comm {
    /// The communicator that a row names.
    fn from_operation(operation: &GpuOperation) -> Self {
        Self {
            id: CommId::new(operation.comm_id),
            rank: operation.rank,
            nranks: operation.nranks,
            parent: None,
        }
    }
}

/// The communicators of one process.
#[derive(Debug, Default)]
pub struct CommTable {
    comms: Vec<Comm>,
    by_pointer: HashMap<u64, PointerState>,
    pending_inits: Vec<PendingInit>,
    channels: HashMap<(CommIndex, u32, u32), CommIndex>,
    matcher: CommMatcher,
    adopted: HashMap<Member, CommIndex>,
    saw_unknown_comm: bool,
    unknown_ops: u64,
}

/// A communicator whose pointer was found by the rows of the profiler plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdoptedComm {
    /// The communicator.
    pub index: CommIndex,
    /// The number of its next collective, where the rows told it: one that was seen being made is counted by the source.
    pub next: Option<u64>,
}

/// What a pointer stands for.
#[derive(Debug, Clone, Copy)]
enum PointerState {
    /// A communicator that was seen being made.
    Known(CommIndex),
    /// A communicator of one rank.
    SingleRank,
    /// A communicator made before tracing began, adopted from what the profiler plugin reports.
    Adopted(CommIndex),
    /// A communicator made before tracing began.
    ///
    /// How many operations it had seen by then is not known, so its operations have no sequence numbers and no
    /// equals on other ranks: they are counted and left out, until the communicator is adopted. The
    /// pointer is remembered, or the next communicator that is made would be taken for it.
    Unknown,
}

#[derive(Debug)]
struct PendingInit {
    tid: u32,
    comm: Option<CommIndex>,
}

impl CommTable {
    /// Notes that a communicator was made; the next new pointer belongs to it, unless the source knows which.
    ///
    /// Communicators of one rank are matched to their pointer too, so that the next one is not
    /// taken for them, but nothing is reported about them.
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

    /// The channel on which a communicator's rank `from` sends to its rank `to`, one of which is this process. Both ends number its
    /// transfers alike, so it is followed as a communicator of two.
    pub fn channel(&mut self, parent: CommIndex, (from, to): (u32, u32)) -> Option<CommIndex> {
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

    /// Forgets a pointer, which may be used again for another communicator; the one that is gone, if it is known.
    pub fn remove(&mut self, pointer: u64) -> Option<CommIndex> {
        self.matcher.forget(pointer);
        match self.by_pointer.remove(&pointer)? {
            PointerState::Known(index) | PointerState::Adopted(index) => Some(index),
            PointerState::SingleRank | PointerState::Unknown => None,
        }
    }

    /// The communicator behind a pointer that a thread just used.
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
                self.unknown_ops += 1;
                None
            }
        }
    }

    /// Takes a call before it takes effect, so that a communicator older than the agent can be adopted.
    pub fn record_call(&mut self, call: &Call) {
        if let CallKind::Operation(operation) = &call.kind {
            let span = (call.ts_ns, Some(call.return_ns()));
            self.matcher.record_call(call.tid, span, operation);
        }
    }

    /// The same of a call that has not returned yet.
    pub fn record_entry(&mut self, entered: &Entered) {
        if let CallKind::Operation(operation) = &entered.kind {
            let span = (entered.ts_ns, None);
            self.matcher.record_call(entered.tid, span, operation);
        }
    }

    /// The same of the return of such a call.
    pub fn record_return(&mut self, call: &Call) {
        if matches!(call.kind, CallKind::Operation(_)) {
            self.matcher
                .record_return(call.tid, call.ts_ns, call.return_ns());
        }
    }

    /// The collective that was called last, with its number where its communicator was adopted; none where NCCL does not number it.
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

    /// Takes a row of the plugin on a communicator that is not known, or that was adopted; the communicator when rows agree on one
    /// that is news.
    pub fn adopt(&mut self, operation: &GpuOperation) -> Option<AdoptedComm> {
        let found = self.matcher.observe_row(operation)?;
        self.adopt_match(found, Comm::from_operation(operation))
    }

    /// Takes an operation that a graph replays, on a communicator that no call is known of.
    pub fn adopt_replayed(&mut self, operation: &GpuOperation) -> Option<AdoptedComm> {
        Some(AdoptedComm {
            index: self.adopted_index(Comm::from_operation(operation))?,
            next: Some(operation.seq),
        })
    }

    /// Takes what a communicator has in memory; the communicator when such states agree on one that is news.
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

    /// Whether a communicator was adopted.
    pub fn is_adopted(&self, index: CommIndex) -> bool {
        self.adopted.values().any(|adopted| *adopted == index)
    }

    /// Whether every communicator that was used was seen being made.
    pub fn is_complete(&self) -> bool {
        !self.saw_unknown_comm
    }

    /// Gives up the numbers of adopted communicators, since calls may be missing, until rows tell them again. Those of communicators
    /// that were seen being made are counted by the source.
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

    /// The index of an adopted communicator, a new one when it was never adopted before.
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

    /// The communicators with their index.
    pub fn indexed(&self) -> impl Iterator<Item = (CommIndex, &Comm)> {
        CommIndex::enumerate(&self.comms)
    }

    /// The communicators, by index.
    pub fn comms(&self) -> &[Comm] {
        &self.comms
    }

    /// Operations on communicators made before tracing began and not adopted by then.
    pub fn unknown_ops(&self) -> u64 {
        self.unknown_ops
    }

    // Frameworks make most communicators just before their first operation on the same thread, so
    // the thread tells more than the order.
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
