//! Correlation of waits with issued collectives: per process, not per thread or stream, because
//! frameworks issue collectives on one thread and stream and wait on others.

use std::collections::HashMap;

use crate::discover::CommIndex;
use crate::event::{Activity, Op, Operation};
use crate::order::BLOCKING_NS;
use crate::signal::OpClass;

/// Reference to one collective of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpRef {
    /// Communicator.
    pub comm: CommIndex,
    /// Sequence number on the communicator, from 0.
    pub seq: u64,
    /// Kind of operation.
    pub op: Op,
}

/// Observation derived from one step of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// Collective issued.
    Issued(Issued),
    /// Start of a wait for the GPU.
    WaitBegan {
        /// Thread id.
        tid: u32,
    },
    /// End of a wait for the GPU.
    Waited(Waited),
    /// Collective completed on the GPU.
    Completed(CompletedOp),
    /// Time that the GPU spent in a transfer.
    TransferTime {
        /// Time during which no other operation of the process was known to run, nanoseconds.
        exclusive_ns: u64,
    },
    /// Activity of the process on its host since the last observation of this kind.
    Active(Activity),
}

/// Collective at its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issued {
    /// Collective.
    pub at: OpRef,
    /// Hash of the operation, without the identity of its communicator.
    pub signature: u64,
    /// Class of the operation: operations of one class take about the same time.
    pub class: OpClass,
    /// Entry of the call, nanoseconds.
    pub entry_ns: u64,
    /// Time since the return of the last blocking synchronization, or of the longest short one
    /// where those count, if no collective was issued in between, nanoseconds.
    pub host_gap_ns: Option<u64>,
    /// Number of operations of the communicator just before it that were not reported.
    pub missed: u64,
    /// Set if a few rows are missing among rows that stand for calls: the replayed operations did
    /// run, and their numbers are known.
    pub is_filled: bool,
}

/// Blocking synchronization at its return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// Thread id.
    pub tid: u32,
    /// Entry of the call, nanoseconds.
    pub entry_ns: u64,
    /// Return of the call, nanoseconds.
    pub return_ns: u64,
    /// Part of it in which no other thread was known to be blocked, nanoseconds.
    pub blocked_ns: u64,
    /// Last collective issued before it, unless an earlier synchronization has covered that one;
    /// collectives covered by a short synchronization are covered again by a long one.
    pub covers: Option<OpRef>,
}

/// Synchronization at which the next gap begins.
#[derive(Debug, Clone, Copy)]
struct GapStart {
    return_ns: u64,
    dur_ns: u64,
}

/// Collective that has completed on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedOp {
    /// Collective.
    pub at: OpRef,
    /// Timing; `None` if the GPU took none.
    pub times: Option<GpuTiming>,
}

impl CompletedOp {
    /// Returns its completion on all ranks, if the GPU took its times.
    pub fn completion(&self) -> Option<Completion> {
        Some(Completion {
            seq: self.at.seq,
            return_ns: self.times?.end_ns,
        })
    }
}

/// Queue and run times of a collective, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuTiming {
    /// Time from its enqueue to the start of its kernel.
    pub queue_ns: u64,
    /// Duration of its kernel.
    pub kernel_ns: u64,
    /// Part of the kernel time in which no other operation was known to run.
    pub exclusive_ns: u64,
    /// End, on the clock of the host.
    pub end_ns: u64,
}

/// Participants of an operation, as far as they distinguish it from others.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Ranks of the communicator.
    pub nranks: u32,
    /// Side of the peer of a transfer. In a pipeline, transfers to the next stage differ from those
    /// to the previous one.
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

/// Side of the peer of a transfer. In a pipeline, transfers to the next stage differ from those to
/// the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerSide {
    /// Peer with a lower rank.
    Lower,
    /// Peer with a higher rank.
    Higher,
}

/// Correlator of one process.
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
    /// Records a collective, or one side of a transfer.
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
        // The row of a replayed operation may arrive after a synchronization before which it was
        // enqueued.
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
            // With an operation missing, the one before the gap may not be the last.
            host_gap_ns: host_gap_ns.filter(|_| missed == 0),
            missed,
            is_filled: false,
        })
    }

    /// Sets the number of the next operation of a communicator.
    pub fn renumber(&mut self, comm: CommIndex, next: u64) {
        if let Some(known) = self.next_seq.get_mut(comm.position()) {
            *known = next;
        }
    }

    /// Records the entry of a blocking synchronization.
    pub fn begin_wait(&mut self, tid: u32) -> Observation {
        self.waiting.insert(tid, (self.issued, self.last));
        Observation::WaitBegan { tid }
    }

    /// Records the return of a blocking synchronization.
    pub fn end_wait(&mut self, tid: u32, entry_ns: u64, return_ns: u64) -> Observation {
        let (issued, last) = self
            .waiting
            .remove(&tid)
            .unwrap_or((self.issued, self.last));
        let dur_ns = return_ns.saturating_sub(entry_ns);
        let is_long = dur_ns > BLOCKING_NS;
        // A short synchronization may not have been for the collectives, so it does not count
        // against a long one.
        let covered = if is_long {
            &mut self.covered_by_long
        } else {
            &mut self.covered
        };
        let covers = if issued > *covered { last } else { None };
        *covered = issued.max(*covered);
        self.covered = self.covered.max(issued);
        // Among short ones, the longest is the one that waited for the GPU, if any did.
        let is_longest = self.gap_start.is_none_or(|from| dur_ns > from.dur_ns);
        let has_waited = is_long || is_longest && (covers.is_some() || self.gap_start.is_some());
        // Before the first collective, a gap would only measure how long the job takes to start.
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

    /// Returns the sequence number of an operation and the number of operations skipped before it.
    /// A repeated number counts as a gap, since either of the two may be wrong.
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

/// Time at which a communicator's operations up to one of them were complete on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Completion {
    /// Last complete operation.
    pub seq: u64,
    /// Time at which the rank learned of it, nanoseconds.
    pub return_ns: u64,
}

/// Tracks the completions of one communicator.
#[derive(Debug)]
pub struct Completions {
    comm: CommIndex,
    last_seq: Option<u64>,
    began: HashMap<u32, Option<u64>>,
}

impl Completions {
    /// Creates a tracker for `comm`.
    pub fn new(comm: CommIndex) -> Self {
        Self {
            comm,
            last_seq: None,
            began: HashMap::new(),
        }
    }

    /// Processes the next observation and returns the completion that it shows, if any.
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
