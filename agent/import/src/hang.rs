//! Ranks that did not join an operation for which their peers wait, from Flight Recorder dumps.
//!
//! In each process group the *front* is the highest collective that a rank waits for. A rank of the
//! group that has not enqueued it is *behind*. Clocks are not compared: only numbers of operations
//! are.
//!
//! A rank may be behind because it waits for another rank: the last operation that it enqueued is
//! the front of another group, and another rank of that group is behind. Such a rank is a link of
//! the chain; the rank at the end of the chain is missing. If the chain is a circle, it has no end,
//! and all its ranks are named.
//!
//! If no collective waits, the sends and receives are analysed: a rank is behind if it has not
//! enqueued the other half of a transfer for which its peer waits.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::flight_recorder::Dump;
use crate::transfers::{WaitingTransfer, waiting_transfers};

/// Operation that some ranks of a process group have not joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// Name of the process group.
    pub group: String,
    /// Purpose of the process group.
    pub purpose: String,
    /// Name of the operation.
    pub op: String,
    /// Number of the operation in the group; of a transfer, among those of the rank that waits.
    pub seq: i64,
    /// Ranks that have enqueued it and wait.
    pub waiting: Vec<u32>,
    /// Ranks that have not enqueued it.
    pub behind: Vec<u32>,
    /// Ranks of the group without a dump.
    pub without_dump: Vec<u32>,
    /// Set for a send or receive, of which `behind` is the peer.
    #[serde(default)]
    pub is_transfer: bool,
}

/// Result of the analysis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Hang {
    /// Ranks that did not join and do not themselves wait for others.
    pub missing: Vec<u32>,
    /// Ranks without a dump for which others wait.
    pub without_dump: Vec<u32>,
    /// Ranks that are behind because they wait for a missing rank, or for another one of these.
    pub links: Vec<u32>,
    /// Groups that wait, those of the missing ranks first.
    pub blocked: Vec<Blocked>,
}

impl Hang {
    /// Returns whether any rank waits for another one.
    pub fn is_found(&self) -> bool {
        !self.blocked.is_empty()
    }
}

/// Analyses the dumps, by rank.
pub fn analyse(dumps: &BTreeMap<u32, Dump>) -> Hang {
    let last_enqueued = last_enqueued(dumps);
    let mut blocked: Vec<Blocked> = fronts(dumps)
        .into_iter()
        .filter_map(|(group, front)| front.blocked(group, &last_enqueued))
        .collect();
    let mut waits_for = waits(dumps, &blocked);
    if blocked.is_empty() {
        let transfers = waiting_transfers(dumps);
        for transfer in transfers.iter().filter(|transfer| transfer.is_last) {
            let others = waits_for.entry(transfer.rank).or_default();
            others.insert(transfer.peer);
        }
        blocked = transfers.into_iter().map(Blocked::from).collect();
    }
    let behind: BTreeSet<u32> = blocked
        .iter()
        .flat_map(|one| &one.behind)
        .copied()
        .collect();
    let is_root = |rank: &u32| {
        let waits = waits_for.get(rank);
        waits.is_none_or(|others| {
            others
                .iter()
                .all(|other| leads_back(*other, *rank, &waits_for))
        })
    };
    let (missing, links): (Vec<u32>, Vec<u32>) = behind.into_iter().partition(is_root);
    let without_dump: BTreeSet<u32> = blocked
        .iter()
        .filter(|one| one.behind.is_empty())
        .flat_map(|one| &one.without_dump)
        .copied()
        .collect();
    blocked.sort_by_key(|one| {
        let is_of_root = one.behind.iter().any(|rank| missing.contains(rank));
        (!is_of_root, one.group.len(), one.group.clone())
    });
    Hang {
        missing,
        without_dump: without_dump.into_iter().collect(),
        links,
        blocked,
    }
}

/// Last collective that each rank enqueued in each of its groups.
pub(crate) type LastEnqueued<'d> = BTreeMap<u32, BTreeMap<&'d str, i64>>;

pub(crate) fn last_enqueued(dumps: &BTreeMap<u32, Dump>) -> LastEnqueued<'_> {
    let by_rank = dumps.iter();
    by_rank
        .map(|(rank, dump)| (*rank, dump.last_enqueued()))
        .collect()
}

/// Front of a process group.
struct Front<'d> {
    seq: i64,
    op: &'d str,
    /// Ranks of the group, as its members list them.
    ranks: BTreeSet<u32>,
    purpose: &'d str,
}

/// Returns the front of each group in which a rank waits.
fn fronts(dumps: &BTreeMap<u32, Dump>) -> BTreeMap<&str, Front<'_>> {
    let mut fronts: BTreeMap<&str, Front<'_>> = BTreeMap::new();
    for (rank, dump) in dumps {
        let pending = dump.entries.iter().filter(|entry| entry.is_pending());
        for entry in pending.filter(|entry| !entry.is_p2p) {
            let config = dump.pg_config.get(entry.group());
            let front = fronts.entry(entry.group()).or_insert_with(|| Front {
                seq: i64::MIN,
                op: "",
                ranks: config
                    .map_or_else(BTreeSet::new, |config| config.ranks().into_iter().collect()),
                purpose: config.map_or("", |config| config.desc.as_str()),
            });
            front.ranks.insert(*rank);
            if entry.collective_seq_id > front.seq {
                (front.seq, front.op) = (entry.collective_seq_id, entry.op_name());
            }
        }
    }
    fronts
}

impl Front<'_> {
    /// Returns the operation if not all ranks have enqueued it.
    fn blocked(self, group: &str, last_enqueued: &LastEnqueued<'_>) -> Option<Blocked> {
        let (mut waiting, mut behind, mut without_dump) = (Vec::new(), Vec::new(), Vec::new());
        for rank in self.ranks {
            let own = last_enqueued.get(&rank);
            match own.map(|own| own.get(group).copied()) {
                None => without_dump.push(rank),
                Some(Some(last)) if last >= self.seq => waiting.push(rank),
                Some(_) => behind.push(rank),
            }
        }
        let is_blocked = !behind.is_empty() || !without_dump.is_empty();
        is_blocked.then(|| Blocked {
            group: group.to_owned(),
            purpose: self.purpose.to_owned(),
            op: self.op.to_owned(),
            seq: self.seq,
            waiting,
            behind,
            without_dump,
            is_transfer: false,
        })
    }
}

impl From<WaitingTransfer<'_>> for Blocked {
    fn from(transfer: WaitingTransfer<'_>) -> Self {
        let peer = vec![transfer.peer];
        let (behind, without_dump) = if transfer.has_peer_dump {
            (peer, Vec::new())
        } else {
            (Vec::new(), peer)
        };
        Self {
            group: transfer.group.to_owned(),
            purpose: transfer.purpose.to_owned(),
            op: transfer.op.to_owned(),
            seq: transfer.seq,
            waiting: vec![transfer.rank],
            behind,
            without_dump,
            is_transfer: true,
        }
    }
}

/// Returns the ranks for which the host of a rank may wait: those behind in the group of the last
/// operation that it enqueued, if that is the front.
fn waits(dumps: &BTreeMap<u32, Dump>, blocked: &[Blocked]) -> BTreeMap<u32, BTreeSet<u32>> {
    let mut waits = BTreeMap::new();
    for (rank, dump) in dumps {
        let last = dump.entries.iter().max_by_key(|entry| entry.record_id);
        let Some(last) = last.filter(|last| last.is_pending() && !last.is_p2p) else {
            continue;
        };
        let group = blocked.iter().find(|one| one.group == last.group());
        if let Some(group) = group.filter(|group| group.waiting.contains(rank)) {
            let others: BTreeSet<u32> = group.behind.iter().copied().collect();
            if !others.is_empty() {
                waits.insert(*rank, others);
            }
        }
    }
    waits
}

/// Returns whether the chain of waits that begins at `from` contains `rank`.
fn leads_back(from: u32, rank: u32, waits_for: &BTreeMap<u32, BTreeSet<u32>>) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        if at == rank {
            return true;
        }
        if seen.insert(at) {
            next.extend(waits_for.get(&at).into_iter().flatten());
        }
    }
    false
}

#[cfg(test)]
mod tests;
