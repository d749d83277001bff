//! First operation of a group that does not end, and which ranks have joined it.
//!
//! Hosts enqueue operations ahead of their GPUs, each by another number. So the operation that
//! blocks is the *first* one that has not ended: the lowest one above the highest that has ended on
//! any rank. A rank that ran ahead less far than its peers is as innocent as they are.

use std::collections::BTreeSet;

use crate::job::{Group, Operation, Progress, State};

/// First operation of a group that does not end.
#[derive(Debug)]
pub(crate) struct Front<'j> {
    /// The group.
    pub(crate) group: &'j Group,
    /// Index of the group in the job.
    pub(crate) index: usize,
    /// Number of the operation.
    pub(crate) seq: u64,
    /// Ranks that have enqueued it.
    pub(crate) entered: BTreeSet<u32>,
    /// Ranks that have not.
    pub(crate) behind: BTreeSet<u32>,
    /// Members without an observation.
    pub(crate) unobserved: BTreeSet<u32>,
    /// Members whose observation is too old to tell.
    pub(crate) unknown: BTreeSet<u32>,
}

/// State of a group.
#[derive(Debug)]
pub(crate) enum Standing<'j> {
    /// No operation is known to be pending.
    Idle,
    /// One rank has completed what another has not enqueued. No operation ends before all ranks have
    /// joined it, so the observations are of different moments, between which the group advanced. The
    /// text is the proof.
    Advancing(String),
    /// An operation is pending.
    Pending(Front<'j>),
}

impl Group {
    /// Returns the state of the group, which is the one with this index in the job.
    pub(crate) fn standing(&self, index: usize) -> Standing<'_> {
        let ranks = self.by_age();
        let fresh = || {
            self.progress
                .iter()
                .filter(|(rank, _)| ranks.fresh.contains(rank))
        };
        let observed = || fresh().map(|(_, own)| own);
        if let Some(proof) = self.proof_of_advance(&ranks.fresh) {
            return Standing::Advancing(proof);
        }
        let floor = observed().filter_map(Progress::joined_by_all).max();
        let lowest = observed().map(|own| own.enqueued).min().flatten();
        let highest = observed().filter_map(|own| own.enqueued).max();
        let next = |number: Option<u64>| number.map_or(0, |number| number.saturating_add(1));
        let pending = observed().filter_map(|own| own.first_pending(floor)).min();
        // Without states, what all ranks have enqueued may have ended.
        let beyond = next(floor.or(lowest));
        let reached = highest.filter(|highest| *highest >= beyond).map(|_| beyond);
        let enqueued = |rank: &u32| self.progress.get(rank).and_then(|own| own.enqueued);
        let is_late = ranks.late.iter().any(|rank| enqueued(rank) < highest);
        let seq = pending.or(reached).or_else(|| highest.filter(|_| is_late));
        let Some(seq) = seq else {
            return Standing::Idle;
        };
        let current = ranks.fresh.union(&ranks.late).copied();
        let (entered, behind) = current.partition(|rank| enqueued(rank) >= Some(seq));
        let is_unobserved = |rank: &&u32| !self.progress.contains_key(rank);
        let unobserved = self.members.iter().filter(is_unobserved);
        Standing::Pending(Front {
            group: self,
            index,
            seq,
            entered,
            behind,
            unobserved: unobserved.copied().collect(),
            unknown: ranks.outdated,
        })
    }

    /// Returns the sentence about a rank that has completed what another had not enqueued.
    fn proof_of_advance(&self, ranks: &BTreeSet<u32>) -> Option<String> {
        let fresh = || {
            self.progress
                .iter()
                .filter(|(rank, _)| ranks.contains(rank))
        };
        let completed = fresh().filter_map(|(rank, own)| Some((own.joined_by_all()?, *rank)));
        let (completed, ahead) = completed.max()?;
        let enqueued = fresh().filter_map(|(rank, own)| Some((own.enqueued?, *rank)));
        let (enqueued, late) = enqueued.min()?;
        (enqueued < completed).then(|| {
            format!(
                "rank {ahead} has completed operation {completed} of communicator {}, rank {late} had enqueued no more than {enqueued}: the ranks were observed at different moments of a job that advances",
                self.name
            )
        })
    }
}

impl<'j> Front<'j> {
    /// Returns whether ranks have not joined the operation, as far as is known.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.behind.is_empty() || !self.unobserved.is_empty()
    }

    /// Returns the ranks that have enqueued the operation, and for which it has not ended.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u32> {
        let ended = self.in_state(State::Completed);
        self.entered
            .iter()
            .copied()
            .filter(move |rank| !ended.contains(rank))
    }

    /// Returns whether every rank of the group is known to have joined the operation.
    pub(crate) fn is_joined_by_all(&self) -> bool {
        self.behind.is_empty() && self.unobserved.is_empty() && self.unknown.is_empty()
    }

    /// Returns the operation as this rank enqueued it.
    pub(crate) fn operation(&self, rank: u32) -> Option<&'j Operation> {
        self.group.progress.get(&rank)?.operations.get(&self.seq)
    }

    /// Returns the position of the operation among all that the rank enqueued.
    pub(crate) fn position(&self, rank: u32) -> Option<u64> {
        self.operation(rank)?.position
    }

    /// Returns the ranks on which the operation is in this state.
    pub(crate) fn in_state(&self, state: State) -> BTreeSet<u32> {
        let is_in = |rank: &&u32| self.operation(**rank).is_some_and(|own| own.state == state);
        self.entered.iter().filter(is_in).copied().collect()
    }

    /// Returns the name of the operation on the lowest rank that tells it; empty if none does.
    pub(crate) fn name(&self) -> &'j str {
        let mut names = self.entered.iter().filter_map(|rank| self.operation(*rank));
        names.next().map_or("", |operation| operation.name.as_str())
    }
}
