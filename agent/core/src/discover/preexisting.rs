//! Adoption of communicators older than the agent, from the profiler plugin's reports of their
//! operations. Pure.
//!
//! The plugin numbers the collectives of a communicator from its creation, alike on all ranks, and
//! reports NCCL's hash of it. NCCL enqueues a collective inside the call that issues it, or when
//! the group of that call ends. So the time of the enqueue identifies the call of a row, and with
//! it the pointer of the communicator and its number of collectives. Transfers are counted
//! separately and are not used here.
//!
//! Without the plugin, NCCL's own counters in the memory of the process provide the same, if read
//! while no call on the communicator is in flight.

use std::collections::{HashMap, VecDeque};

use crate::event::{CommState, GpuOperation, Op, Operation};

/// Maximum number of recorded calls that wait for their rows: as many as a process issues ahead of
/// its GPU.
const MAX_CALLS: usize = 4096;

/// Maximum number of calls before a row among which its call is searched.
const MAX_INSIDE: usize = 64;

/// Maximum number of communicators followed per process.
const MAX_MEMBERS: usize = 4096;

/// Number of rows that have to agree on a pointer and a number.
const ROW_VOTES: u32 = 2;

/// Number of states in memory that have to agree, each after further operations.
const STATE_VOTES: u32 = 3;

/// Hash of a communicator in NCCL and the rank in it: one process may have several ranks.
pub(super) type Member = (u64, u32);

/// Pointer of a communicator and its number of collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    /// Pointer.
    pub(super) pointer: u64,
    /// Number of the next collective on it.
    pub(super) next: u64,
}

/// Call recorded while rows are being matched.
#[derive(Debug, Clone, Copy)]
struct RecordedCall {
    pointer: u64,
    /// Number of calls recorded on this pointer before it.
    nth: u64,
    tid: u32,
    op: Op,
    count: u64,
    entry_ns: u64,
    /// Time of its return; the maximum while it has not returned.
    return_ns: u64,
}

/// Candidate match of a communicator.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    pointer: u64,
    /// Number of the first recorded call on the pointer.
    first: u64,
    votes: u32,
    /// Number of collectives in the last state that voted.
    collectives: Option<u64>,
}

/// Latest row of a communicator.
#[derive(Debug, Clone, Copy)]
struct LastRow {
    seq: u64,
    host_ns: u64,
}

/// Matcher of rows to calls.
#[derive(Debug, Default)]
pub(super) struct CommMatcher {
    /// Set once rows of unknown communicators arrive; no call is recorded before that.
    is_looking: bool,
    calls: VecDeque<RecordedCall>,
    issued: HashMap<u64, u64>,
    candidates: HashMap<Member, Candidate>,
    rows: HashMap<Member, LastRow>,
    /// Agreed pointers, with the number of the first recorded call.
    agreed: HashMap<u64, (Member, u64)>,
}

impl CommMatcher {
    /// Records a collective call from its entry to its return, if it has returned.
    pub(super) fn record_call(
        &mut self,
        tid: u32,
        entry_ns: u64,
        return_ns: Option<u64>,
        operation: &Operation,
    ) {
        if !self.is_looking || !is_counted(operation.op) {
            return;
        }
        let pointer = operation.comm;
        if self.issued.len() >= MAX_MEMBERS && !self.issued.contains_key(&pointer) {
            return;
        }
        let issued = self.issued.entry(pointer).or_default();
        let nth = *issued;
        *issued += 1;
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(RecordedCall {
            pointer,
            nth,
            tid,
            op: operation.op,
            count: operation.count,
            entry_ns,
            return_ns: return_ns.unwrap_or(u64::MAX),
        });
    }

    /// Records the return of a call whose entry was recorded before.
    pub(super) fn record_return(&mut self, tid: u32, entry_ns: u64, return_ns: u64) {
        let mut calls = self.calls.iter_mut().rev();
        let call = calls.find(|call| (call.tid, call.entry_ns) == (tid, entry_ns));
        if let Some(call) = call {
            call.return_ns = return_ns;
        }
    }

    /// Returns the number of the last recorded call on an agreed pointer.
    pub(super) fn number(&self, operation: &Operation) -> Option<u64> {
        let (_, first) = self.agreed.get(&operation.comm)?;
        let issued = self.issued.get(&operation.comm)?;
        if !is_counted(operation.op) {
            return None;
        }
        first.checked_add(issued.checked_sub(1)?)
    }

    /// Evaluates a row and returns a match when enough rows newly agree on one.
    pub(super) fn observe_row(&mut self, row: &GpuOperation) -> Option<Match> {
        self.is_looking = true;
        let member = (row.comm_id, row.rank);
        if self.rows.len() >= MAX_MEMBERS && !self.rows.contains_key(&member) {
            return None;
        }
        let call = self
            .enclosing_call(row)
            .or_else(|| self.first_call_since(member, row));
        let is_newer = |last: &LastRow| row.seq > last.seq;
        if self.rows.get(&member).is_none_or(is_newer) {
            let (seq, host_ns) = (row.seq, row.host_ns);
            self.rows.insert(member, LastRow { seq, host_ns });
        }
        let call = call?;
        let fresh = Candidate {
            pointer: call.pointer,
            first: row.seq.checked_sub(call.nth)?,
            votes: 0,
            collectives: None,
        };
        self.vote(member, fresh, ROW_VOTES)
    }

    /// Evaluates a state in memory and returns a match when enough states newly agree on one.
    pub(super) fn observe_state(&mut self, state: &CommState) -> Option<Match> {
        // Earlier calls were not recorded.
        if !std::mem::replace(&mut self.is_looking, true) {
            return None;
        }
        let member = (state.comm_id, state.rank);
        if self.candidates.len() >= MAX_MEMBERS && !self.candidates.contains_key(&member) {
            return None;
        }
        let entered = self.n_entered_by(state.ts_ns);
        let is_on_pointer = |call: &&RecordedCall| call.pointer == state.pointer;
        let mut before = self.calls.range(..entered).filter(is_on_pointer);
        // A call in flight may or may not be counted.
        if before.any(|call| call.return_ns >= state.from_ns) {
            return None;
        }
        let after = self.calls.range(entered..).filter(is_on_pointer).count();
        let issued = self.issued.get(&state.pointer).copied().unwrap_or(0);
        let issued = issued.checked_sub(u64::try_from(after).ok()?)?;
        let last = self
            .candidates
            .get(&member)
            .and_then(|candidate| candidate.collectives);
        if last == Some(state.collectives) {
            return None;
        }
        let fresh = Candidate {
            pointer: state.pointer,
            first: state.collectives.checked_sub(issued)?,
            votes: 0,
            collectives: Some(state.collectives),
        };
        self.vote(member, fresh, STATE_VOTES)
    }

    /// Forgets a pointer, which may be reused by another communicator.
    pub(super) fn forget(&mut self, pointer: u64) {
        self.agreed.remove(&pointer);
        self.issued.remove(&pointer);
        self.calls.retain(|call| call.pointer != pointer);
        self.candidates
            .retain(|_, candidate| candidate.pointer != pointer);
    }

    /// Invalidates all numbers, since calls may be missing, and returns their pointers.
    pub(super) fn invalidate(&mut self) -> Vec<u64> {
        let pointers = self.agreed.keys().copied().collect();
        *self = Self {
            is_looking: self.is_looking,
            ..Self::default()
        };
        pointers
    }

    fn vote(&mut self, member: Member, fresh: Candidate, needed: u32) -> Option<Match> {
        let Candidate { pointer, first, .. } = fresh;
        let candidate = self.candidates.entry(member).or_insert(fresh);
        let votes = if (candidate.pointer, candidate.first) == (pointer, first) {
            candidate.votes.saturating_add(1)
        } else {
            1
        };
        *candidate = Candidate { votes, ..fresh };
        let is_new = self.agreed.get(&pointer) != Some(&(member, first));
        if votes < needed || !is_new {
            return None;
        }
        self.agreed.retain(|_, (known, _)| *known != member);
        self.agreed.insert(pointer, (member, first));
        let issued = self.issued.get(&pointer).copied().unwrap_or(0);
        let next = first.checked_add(issued)?;
        Some(Match { pointer, next })
    }

    /// Returns the only call that was inside NCCL when the operation of the row was enqueued.
    fn enclosing_call(&self, row: &GpuOperation) -> Option<RecordedCall> {
        let end = self.n_entered_by(row.host_ns);
        let start = end.saturating_sub(MAX_INSIDE);
        let mut inside = self.calls.range(start..end).filter(|call| {
            call.return_ns >= row.host_ns
                && may_have_issued(call, row)
                && self.may_stand_for(call.pointer, row)
        });
        let first = *inside.next()?;
        inside.next().is_none().then_some(first)
    }

    /// Returns the first call since the previous row, if all calls since then are on one
    /// communicator: calls of a group are enqueued together at its end, and the first number after
    /// the previous group belongs to its first call.
    fn first_call_since(&self, member: Member, row: &GpuOperation) -> Option<RecordedCall> {
        let last = self.rows.get(&member)?;
        if last.seq.checked_add(1)? != row.seq || last.host_ns >= row.host_ns {
            return None;
        }
        let since = self
            .calls
            .range(self.n_entered_by(last.host_ns)..self.n_entered_by(row.host_ns));
        let mut since = since
            .filter(|call| self.may_stand_for(call.pointer, row))
            .peekable();
        let first = **since.peek()?;
        let mut has_operation = false;
        for call in since {
            if call.pointer != first.pointer {
                return None;
            }
            has_operation |= may_have_issued(call, row);
        }
        has_operation.then_some(first)
    }

    /// Returns the number of calls entered by `at_ns`.
    fn n_entered_by(&self, at_ns: u64) -> usize {
        self.calls.partition_point(|call| call.entry_ns <= at_ns)
    }

    /// Returns whether the pointer is not known to belong to another communicator.
    fn may_stand_for(&self, pointer: u64, row: &GpuOperation) -> bool {
        let known = self.agreed.get(&pointer);
        known.is_none_or(|(member, _)| *member == (row.comm_id, row.rank))
    }
}

/// Returns whether a call may have issued the operation of a row. The plugin reports the elements
/// of the whole operation or bytes, the call elements per rank.
fn may_have_issued(call: &RecordedCall, row: &GpuOperation) -> bool {
    let is_multiple = match call.count {
        0 => row.count == 0,
        count => row.count.is_multiple_of(count),
    };
    call.op == row.op && is_multiple
}

/// Returns whether NCCL counts an operation among the collectives of its communicator. It builds
/// others from transfers.
fn is_counted(op: Op) -> bool {
    use Op::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
    matches!(
        op,
        AllReduce | AllGather | ReduceScatter | Broadcast | Reduce
    )
}

#[cfg(test)]
mod tests;
