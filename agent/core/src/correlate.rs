//! Ties what a process waits for to what it issued: per process, not per thread or stream, because
//! frameworks issue collectives on one thread and stream and wait on others.

use std::collections::HashMap;

use crate::discover::CommIndex;
use crate::event::{Activity, Op, Operation};
use crate::order::BLOCKING_NS;
use crate::signal::OpClass;

/// One collective of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpRef {
    /// Its communicator.
    pub comm: CommIndex,
    /// Its sequence number there, from 0.
    pub seq: u64,
    /// What it is.
    pub op: Op,
}

/// What was learned from one step of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// A collective was issued.
    Issued(Issued),
    /// A thread began to wait for the GPU.
    WaitBegan {
        /// The thread.
        tid: u32,
    },
    /// A thread has waited for the GPU.
    Waited(Waited),
    /// A collective has run on the GPU.
    Completed(CompletedOp),
    /// The GPU was inside a transfer.
    TransferTime {
        /// For how long nothing else of the process was known to be inside anything, nanoseconds.
        exclusive_ns: u64,
    },
    /// What the process did on its host since the last observation of this kind.
    Active(Activity),
}

/// A collective at its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issued {
    /// The collective.
    pub at: OpRef,
    /// Hash of what it does, without its communicator's identity.
    pub signature: u64,
    /// What it does, coarser: operations of one class take about the same time.
    pub class: OpClass,
    /// Entry of the call, nanoseconds.
    pub entry_ns: u64,
    /// Since the return of the last blocking synchronisation, or of the longest short one where those count, when none was issued in
    /// between, nanoseconds.
    pub host_gap_ns: Option<u64>,
    /// Operations of the communicator just before it that nobody told of.
    pub missed: u64,
    /// A few are missing among rows that stand for calls: those that a graph replayed did run, and their numbers are known.
    pub is_filled: bool,
}

/// A blocking synchronisation at its return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// The thread.
    pub tid: u32,
    /// Entry of the call, nanoseconds.
    pub entry_ns: u64,
    /// Return of the call, nanoseconds.
    pub return_ns: u64,
    /// The part of it in which no other thread was known to be blocked, nanoseconds.
    pub blocked_ns: u64,
    /// The last collective issued before it, unless an earlier synchronisation had covered that; what a short
    /// one has covered, a long one covers again.
    pub covers: Option<OpRef>,
}

/// The synchronisation that the next gap begins at.
#[derive(Debug, Clone, Copy)]
struct GapStart {
    return_ns: u64,
    dur_ns: u64,
}

/// A collective that has run on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedOp {
    /// The collective.
    pub at: OpRef,
    /// Its times; none where the GPU took none.
    pub times: Option<GpuTiming>,
}

impl CompletedOp {
    /// When all ranks were done with it, if the GPU took its times.
    pub fn completion(&self) -> Option<Completion> {
        Some(Completion {
            seq: self.at.seq,
            return_ns: self.times?.end_ns,
        })
    }
}

/// How long a collective waited and ran, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuTiming {
    /// From its enqueue to the start of its kernel.
    pub queue_ns: u64,
    /// From the start of its kernel to the end.
    pub kernel_ns: u64,
    /// The part of that in which no other operation was known to run.
    pub exclusive_ns: u64,
    /// When it ended, by the clock of the host.
    pub end_ns: u64,
}

/// Who takes part in an operation, as far as that makes it another one.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Ranks of the communicator.
    pub nranks: u32,
    /// Where the other rank of a transfer lies.
    pub peer_side: Option<PeerSide>,
}

impl From<u32> for Scope {
    fn from(nranks: u32) -> Self {
        Self {
            nranks,
            peer_side: None,
        }
    }
}

/// Where the other rank of a transfer lies. In a pipeline, what goes on to the next stage is not what goes back to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerSide {
    /// At a lower rank.
    Lower,
    /// At a higher rank.
    Higher,
}

/// Follows one process.
#[derive(Debug, Default)]
pub struct Correlator {
    next_seq: Vec<u64>,
    issued: u64,
    covered: u64,
    last: Option<OpRef>,
    waiting: HashMap<u32, (u64, Option<OpRef>)>,
    covered_by_long: u64,
    gap_start: Option<GapStart>,
    blocked_until_ns: u64,
}

impl Correlator {
    /// Takes a collective, or one side of a transfer.
    pub fn issue(
        &mut self,
        comm: CommIndex,
        scope: impl Into<Scope>,
        operation: Operation,
        entry_ns: u64,
    ) -> Observation {
        let (seq, missed) = self.advance(comm, operation.seq);
        let at = OpRef {
            comm,
            seq,
            op: operation.op,
        };
        self.issued += 1;
        self.last = Some(at);
        // The row of a replayed operation may come after a synchronisation that it was enqueued before.
        let host_gap_ns = self
            .gap_start
            .take_if(|from| from.return_ns <= entry_ns)
            .map(|from| entry_ns.saturating_sub(from.return_ns));
        let signature = signature(scope.into(), operation);
        Observation::Issued(Issued {
            at,
            signature,
            class: OpClass::from_operation(operation),
            entry_ns,
            // With an operation missing, the one before the gap is not known to be the last.
            host_gap_ns: host_gap_ns.filter(|_| missed == 0),
            missed,
            is_filled: false,
        })
    }

    /// Takes that the next operation of a communicator has another number than was counted here.
    pub fn renumber(&mut self, comm: CommIndex, next: u64) {
        if let Some(known) = self.next_seq.get_mut(comm.position()) {
            *known = next;
        }
    }

    /// Takes the entry of a blocking synchronisation.
    pub fn begin_wait(&mut self, tid: u32) -> Observation {
        self.waiting.insert(tid, (self.issued, self.last));
        Observation::WaitBegan { tid }
    }

    /// Takes the return of a blocking synchronisation.
    pub fn end_wait(&mut self, tid: u32, entry_ns: u64, return_ns: u64) -> Observation {
        let (issued, last) = self
            .waiting
            .remove(&tid)
            .unwrap_or((self.issued, self.last));
        let dur_ns = return_ns.saturating_sub(entry_ns);
        let is_long = dur_ns > BLOCKING_NS;
        // A short one may have been of something else than the collectives, so it takes nothing away from a long one.
        let covered = if is_long {
            &mut self.covered_by_long
        } else {
            &mut self.covered
        };
        let covers = if issued > *covered { last } else { None };
        *covered = issued.max(*covered);
        self.covered = self.covered.max(issued);
        // Of short ones the longest is the one that waited for the GPU, if any did.
        let is_longest = self.gap_start.is_none_or(|from| dur_ns > from.dur_ns);
        let has_waited = is_long || is_longest && (covers.is_some() || self.gap_start.is_some());
        // Before the first collective a gap would only measure how long the job takes to start.
        if self.issued > 0 && has_waited {
            self.gap_start = Some(GapStart { return_ns, dur_ns });
        }
        let blocked_ns = return_ns.saturating_sub(entry_ns.max(self.blocked_until_ns));
        self.blocked_until_ns = self.blocked_until_ns.max(return_ns);
        Observation::Waited(Waited {
            tid,
            entry_ns,
            return_ns,
            blocked_ns,
            covers,
        })
    }

    /// The sequence number of an operation, and how many were left out before it. One that was told before has that number again, and
    /// counts as a gap: nobody knows which of the two is right.
    fn advance(&mut self, comm: CommIndex, reported: Option<u64>) -> (u64, u64) {
        let position = comm.position();
        if self.next_seq.len() <= position {
            self.next_seq.resize(position + 1, 0);
        }
        let Some(next) = self.next_seq.get_mut(position) else {
            return (0, 0);
        };
        let seq = reported.unwrap_or(*next);
        let missed = seq.abs_diff(*next);
        *next = seq.saturating_add(1).max(*next);
        (seq, missed)
    }
}

/// A point in time at which a communicator's operations up to one of them were complete on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Completion {
    /// Last operation that was complete.
    pub seq: u64,
    /// When the rank learned of it, nanoseconds.
    pub return_ns: u64,
}

/// Follows the completions of one communicator.
#[derive(Debug)]
pub struct Completions {
    comm: CommIndex,
    last_seq: Option<u64>,
    began: HashMap<u32, Option<u64>>,
}

impl Completions {
    /// Follows `comm`.
    pub fn new(comm: CommIndex) -> Self {
        Self {
            comm,
            last_seq: None,
            began: HashMap::new(),
        }
    }

    /// Takes the next observation of the process.
    pub fn observe(&mut self, observation: &Observation) -> Option<Completion> {
        match *observation {
            Observation::Issued(issued) => {
                if issued.at.comm == self.comm {
                    self.last_seq = Some(issued.at.seq);
                }
                None
            }
            Observation::Active(_)
            | Observation::Completed(_)
            | Observation::TransferTime { .. } => None,
            Observation::WaitBegan { tid } => {
                self.began.insert(tid, self.last_seq);
                None
            }
            Observation::Waited(waited) => {
                let seq = self.began.remove(&waited.tid).unwrap_or(self.last_seq)?;
                waited.covers.map(|_| Completion {
                    seq,
                    return_ns: waited.return_ns,
                })
            }
        }
    }
}

fn signature(scope: Scope, operation: Operation) -> u64 {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend_from_slice(operation.op.name().as_bytes());
    bytes.extend_from_slice(&scope.nranks.to_le_bytes());
    bytes.extend_from_slice(&operation.datatype.to_le_bytes());
    bytes.extend_from_slice(&operation.count.to_le_bytes());
    bytes.extend(scope.peer_side.map(|peer_side| peer_side as u8));
    xxhash_rust::xxh64::xxh64(&bytes, 0)
}

#[cfg(test)]
mod tests;
