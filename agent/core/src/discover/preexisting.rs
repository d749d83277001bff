//! Communicators older than the agent, adopted from what the profiler plugin reports of their operations. Pure.
//!
//! The plugin numbers the collectives of a communicator since it was made, alike on all ranks, and reports NCCL's hash of it. NCCL
//! enqueues a collective inside the call that issues it, or when the group of that call ends. So the time of the enqueue tells which
//! call a row belongs to, and with it which pointer stands for the hash and how far the communicator had come. Transfers are counted
//! apart and tell nothing here.
//!
//! Without the plugin NCCL's own counters in the memory of the process say the same, read while no call on the communicator is inside.

use std::collections::{HashMap, VecDeque};

use crate::event::{CommState, Op, Operation, Ran};

/// Calls that are remembered until their rows arrive: as many as a process issues ahead of its GPU.
const MAX_CALLS: usize = 4096;

/// Calls before a row among which the one is looked for that was inside NCCL when the row's operation was enqueued.
const MAX_INSIDE: usize = 64;

/// Maximum number of communicators followed per process.
const MAX_MEMBERS: usize = 4096;

/// Rows that have to agree on a pointer and a number before they are believed.
const ROW_VOTES: u32 = 2;

/// States in memory that have to agree, each after further operations.
const STATE_VOTES: u32 = 3;

/// A communicator as NCCL names it, and the rank in it: one process may hold several ranks.
pub(super) type Member = (u64, u32);

/// A pointer that stands for a communicator, and how far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    /// The pointer.
    pub(super) pointer: u64,
    /// The number of the next collective on it.
    pub(super) next: u64,
}

/// A call that was issued while rows were looked for.
#[derive(Debug, Clone, Copy)]
struct Mark {
    pointer: u64,
    /// How many were remembered of this pointer before it.
    nth: u64,
    tid: u32,
    op: Op,
    count: u64,
    entry_ns: u64,
    /// When it returned; the end of time while it has not.
    return_ns: u64,
}

/// What rows say of a communicator so far.
#[derive(Debug, Clone, Copy)]
struct Claim {
    pointer: u64,
    /// Number of the first call that was remembered of the pointer.
    first: u64,
    votes: u32,
    /// The count of the state in memory that voted last.
    counted: Option<u64>,
}

/// The newest row of a communicator.
#[derive(Debug, Clone, Copy)]
struct LastRow {
    seq: u64,
    host_ns: u64,
}

/// Matches rows to calls.
#[derive(Debug, Default)]
pub(super) struct Adopter {
    /// Whether rows arrive whose communicator is not known; until then no call is remembered.
    is_looking: bool,
    calls: VecDeque<Mark>,
    issued: HashMap<u64, u64>,
    claims: HashMap<Member, Claim>,
    rows: HashMap<Member, LastRow>,
    /// Pointers that rows have agreed on, with the number of the first call that was remembered.
    agreed: HashMap<u64, (Member, u64)>,
}

impl Adopter {
    /// Takes a collective call from its entry to its return, if it has returned.
    pub(super) fn called(&mut self, tid: u32, span: (u64, Option<u64>), operation: &Operation) {
        let (entry_ns, return_ns) = span;
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
        self.calls.push_back(Mark {
            pointer,
            nth,
            tid,
            op: operation.op,
            count: operation.count,
            entry_ns,
            return_ns: return_ns.unwrap_or(u64::MAX),
        });
    }

    /// Takes the return of a call whose entry was taken before.
    pub(super) fn returned(&mut self, tid: u32, entry_ns: u64, return_ns: u64) {
        let mut calls = self.calls.iter_mut().rev();
        let call = calls.find(|call| (call.tid, call.entry_ns) == (tid, entry_ns));
        if let Some(call) = call {
            call.return_ns = return_ns;
        }
    }

    /// The number of the call that was taken last, on an agreed pointer.
    pub(super) fn number(&self, operation: &Operation) -> Option<u64> {
        let (_, first) = self.agreed.get(&operation.comm)?;
        let issued = self.issued.get(&operation.comm)?;
        if !is_counted(operation.op) {
            return None;
        }
        first.checked_add(issued.checked_sub(1)?)
    }

    /// Takes a row; a match when enough rows agree on one that is news.
    pub(super) fn row(&mut self, ran: &Ran) -> Option<Match> {
        self.is_looking = true;
        let member = (ran.comm_id, ran.rank);
        if self.rows.len() >= MAX_MEMBERS && !self.rows.contains_key(&member) {
            return None;
        }
        let call = self.inside(ran).or_else(|| self.after(member, ran));
        let is_newer = |last: &LastRow| ran.seq > last.seq;
        if self.rows.get(&member).is_none_or(is_newer) {
            let (seq, host_ns) = (ran.seq, ran.host_ns);
            self.rows.insert(member, LastRow { seq, host_ns });
        }
        let call = call?;
        let fresh = Claim {
            pointer: call.pointer,
            first: ran.seq.checked_sub(call.nth)?,
            votes: 0,
            counted: None,
        };
        self.vote(member, fresh, ROW_VOTES)
    }

    /// Takes what a communicator has in memory; a match when enough states agree on one that is news.
    pub(super) fn state(&mut self, state: &CommState) -> Option<Match> {
        // Calls before were not remembered.
        if !std::mem::replace(&mut self.is_looking, true) {
            return None;
        }
        let member = (state.comm_id, state.rank);
        if self.claims.len() >= MAX_MEMBERS && !self.claims.contains_key(&member) {
            return None;
        }
        let entered = self.end(state.ts_ns);
        let is_its = |call: &&Mark| call.pointer == state.pointer;
        let mut before = self.calls.range(..entered).filter(is_its);
        // A call that is inside may be counted or not.
        if before.any(|call| call.return_ns >= state.from_ns) {
            return None;
        }
        let after = self.calls.range(entered..).filter(is_its).count();
        let issued = self.issued.get(&state.pointer).copied().unwrap_or(0);
        let issued = issued.checked_sub(u64::try_from(after).ok()?)?;
        let last = self.claims.get(&member).and_then(|claim| claim.counted);
        if last == Some(state.collectives) {
            return None;
        }
        let fresh = Claim {
            pointer: state.pointer,
            first: state.collectives.checked_sub(issued)?,
            votes: 0,
            counted: Some(state.collectives),
        };
        self.vote(member, fresh, STATE_VOTES)
    }

    /// Forgets a pointer: another communicator may be there from now on.
    pub(super) fn forget(&mut self, pointer: u64) {
        self.agreed.remove(&pointer);
        self.issued.remove(&pointer);
        self.calls.retain(|call| call.pointer != pointer);
        self.claims.retain(|_, claim| claim.pointer != pointer);
    }

    /// Gives up all numbers, since calls may be missing; the pointers that they were of.
    pub(super) fn lost(&mut self) -> Vec<u64> {
        let pointers = self.agreed.keys().copied().collect();
        *self = Self {
            is_looking: self.is_looking,
            ..Self::default()
        };
        pointers
    }

    fn vote(&mut self, member: Member, fresh: Claim, needed: u32) -> Option<Match> {
        let Claim { pointer, first, .. } = fresh;
        let claim = self.claims.entry(member).or_insert(fresh);
        let votes = if (claim.pointer, claim.first) == (pointer, first) {
            claim.votes.saturating_add(1)
        } else {
            1
        };
        *claim = Claim { votes, ..fresh };
        let is_news = self.agreed.get(&pointer) != Some(&(member, first));
        if votes < needed || !is_news {
            return None;
        }
        self.agreed.retain(|_, (known, _)| *known != member);
        self.agreed.insert(pointer, (member, first));
        let issued = self.issued.get(&pointer).copied().unwrap_or(0);
        let next = first.checked_add(issued)?;
        Some(Match { pointer, next })
    }

    /// The one call that was inside NCCL when the row's operation was enqueued.
    fn inside(&self, ran: &Ran) -> Option<Mark> {
        let end = self.end(ran.host_ns);
        let start = end.saturating_sub(MAX_INSIDE);
        let mut inside = self.calls.range(start..end).filter(|call| {
            call.return_ns >= ran.host_ns && is_of(call, ran) && self.may_be(call.pointer, ran)
        });
        let first = *inside.next()?;
        inside.next().is_none().then_some(first)
    }

    /// The first call since the row before, if all calls since then are of one communicator: those of a group are enqueued together at
    /// its end, and the first number after the group before belongs to its first call.
    fn after(&self, member: Member, ran: &Ran) -> Option<Mark> {
        let last = self.rows.get(&member)?;
        if last.seq.checked_add(1)? != ran.seq || last.host_ns >= ran.host_ns {
            return None;
        }
        let since = self
            .calls
            .range(self.end(last.host_ns)..self.end(ran.host_ns));
        let mut since = since
            .filter(|call| self.may_be(call.pointer, ran))
            .peekable();
        let first = **since.peek()?;
        let mut has_it = false;
        for call in since {
            if call.pointer != first.pointer {
                return None;
            }
            has_it |= is_of(call, ran);
        }
        has_it.then_some(first)
    }

    /// How many of the calls were entered by then.
    fn end(&self, at_ns: u64) -> usize {
        self.calls.partition_point(|call| call.entry_ns <= at_ns)
    }

    /// Whether no other communicator is known to be behind the pointer.
    fn may_be(&self, pointer: u64, ran: &Ran) -> bool {
        let known = self.agreed.get(&pointer);
        known.is_none_or(|(member, _)| *member == (ran.comm_id, ran.rank))
    }
}

/// Whether a call may have issued the operation of a row. The plugin reports elements of the whole operation or bytes, where the call
/// says elements per rank.
fn is_of(call: &Mark, ran: &Ran) -> bool {
    let is_multiple = match call.count {
        0 => ran.count == 0,
        count => ran.count.is_multiple_of(count),
    };
    call.op == ran.op && is_multiple
}

/// Whether NCCL counts an operation among the collectives of its communicator. Others it makes of transfers.
fn is_counted(op: Op) -> bool {
    use Op::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
    matches!(
        op,
        AllReduce | AllGather | ReduceScatter | Broadcast | Reduce
    )
}

#[cfg(test)]
mod tests;
