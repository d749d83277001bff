//! Analysis of operations that do not end: which ranks did not join, and other reasons. Pure.
//!
//! Dumps, answers of NCCL's RAS subsystem and reports of agents show the same: how far each rank is
//! in each of its groups. [`analyse`] is the one place that draws conclusions from that.
//!
//! - The operation that blocks a group is the first one that has not ended, not the highest one:
//!   hosts run ahead of their GPUs by different amounts.
//! - A rank that has completed what another has not enqueued proves that the observations are of
//!   different moments. Nothing that hangs does that, so no rank is named.
//! - A rank that did not join may itself wait, in another group. The chain is followed to its end.
//! - If all ranks have joined and the operation does not end, ranks are compared by what they
//!   enqueued, in which order, and whether their GPUs have begun it.
//!
//! ```
//! use fleet_hang::{Group, Job, Progress, analyse};
//!
//! // All ranks have completed operation 100; ranks 0 and 1 ran ahead, rank 2 did not come.
//! let rank = |enqueued| Progress { enqueued: Some(enqueued), completed: Some(100), ..Progress::default() };
//! let group = Group {
//!     name: "world".to_owned(),
//!     members: [0, 1, 2].into(),
//!     progress: [(0, rank(117)), (1, rank(121)), (2, rank(100))].into(),
//!     ..Group::default()
//! };
//! let hang = analyse(&Job { groups: vec![group], ..Job::default() });
//! assert_eq!(hang.missing, [2]);
//! assert_eq!(hang.findings[0].sentence, "rank 2 did not join operation 101 of communicator world");
//! ```

mod chain;
mod finding;
mod front;
mod graph;
mod job;
mod joined;
mod missing;

use std::collections::BTreeSet;

use crate::chain::Waits;
pub use crate::finding::{Blocked, Finding, Hang, Kind, Place, list, noun};
use crate::front::{Front, Standing};
pub use crate::job::{Group, Job, LastOperation, Operation, Process, Progress, State, Transfer};

/// Analyses the observed progress of a job.
pub fn analyse(job: &Job) -> Hang {
    let Pending {
        fronts,
        transfers,
        advance,
    } = Pending::new(job);
    let waits = Waits::new(job, &fronts, &transfers);
    let mut blocked: Vec<Blocked> = fronts
        .iter()
        .filter(|front| front.is_blocked())
        .map(blocked)
        .chain(transfers.into_iter().map(Blocked::from))
        .collect();
    let behind = blocked.iter().flat_map(|one| &one.behind);
    let behind = waits.divide(&behind.copied().collect(), &job.processes);
    blocked.sort_by_cached_key(|one| {
        let is_of_source = one.behind.iter().any(|rank| behind.sources.contains(rank));
        let name = one.group.clone();
        (
            !is_of_source,
            one.is_transfer,
            name.len(),
            name,
            one.waiting.clone(),
        )
    });
    let mut findings = missing::ended(&job.processes);
    findings.extend(missing::behind(job, &behind, &blocked));
    findings.extend(missing::unobserved(job, &blocked));
    if findings.is_empty() {
        findings = joined::joined(job, &fronts);
        let joined = fronts.iter().filter(|front| front.is_joined_by_all());
        blocked.extend(joined.map(self::blocked));
    }
    Hang {
        missing: ranks_of(&findings, |one| {
            let kinds = [Kind::DidNotJoin, Kind::Stopped, Kind::OtherOrder];
            kinds.contains(&one) && !behind.sources.is_empty()
        }),
        unobserved: ranks_of(&findings, |one| one == Kind::NotObserved),
        links: behind.links.into_iter().collect(),
        findings,
        blocked,
        advance,
    }
}

fn ranks_of(findings: &[Finding], is_of: impl Fn(Kind) -> bool) -> Vec<u32> {
    let findings = findings.iter().filter(|one| is_of(one.kind));
    let ranks: BTreeSet<u32> = findings.flat_map(|one| &one.ranks).copied().collect();
    ranks.into_iter().collect()
}

/// What is pending in the groups that do not advance.
struct Pending<'j> {
    fronts: Vec<Front<'j>>,
    transfers: Vec<&'j Transfer>,
    /// Proof that other groups advance.
    advance: Option<String>,
}

impl<'j> Pending<'j> {
    /// Groups that share ranks with one that advances, directly or through other groups, show
    /// nothing.
    fn new(job: &'j Job) -> Self {
        let (mut fronts, mut advancing, mut advance) = (Vec::new(), BTreeSet::new(), None);
        for (index, group) in job.groups.iter().enumerate() {
            match group.standing(index) {
                Standing::Idle => {}
                Standing::Advancing(proof) => {
                    advancing.extend(&group.members);
                    advance = advance.or(Some(proof));
                }
                Standing::Pending(front) => fronts.push(front),
            }
        }
        let mut known = 0;
        while advancing.len() > known {
            known = advancing.len();
            for group in &job.groups {
                if !group.members.is_disjoint(&advancing) {
                    advancing.extend(&group.members);
                }
            }
        }
        fronts.retain(|front| front.group.members.is_disjoint(&advancing));
        // The other half of a transfer may have ended already. It counts beside collectives that
        // are blocked only if the host of the rank has enqueued nothing since.
        let is_blocked = fronts.iter().any(Front::is_blocked);
        let counts =
            |own: &&Transfer| !advancing.contains(&own.rank) && (own.is_last || !is_blocked);
        Self {
            transfers: job.transfers.iter().filter(counts).collect(),
            fronts,
            advance,
        }
    }
}

fn blocked(front: &Front<'_>) -> Blocked {
    let ranks = |of: &BTreeSet<u32>| of.iter().copied().collect();
    Blocked {
        group: front.group.name.clone(),
        purpose: front.group.purpose.clone(),
        op: front.name().to_owned(),
        seq: front.seq,
        waiting: ranks(&front.entered),
        behind: ranks(&front.behind),
        unobserved: ranks(&front.unobserved),
        unknown: ranks(&front.unknown),
        is_transfer: false,
    }
}

impl From<&Transfer> for Blocked {
    fn from(transfer: &Transfer) -> Self {
        let peer = vec![transfer.peer];
        let (behind, unobserved) = if transfer.is_peer_observed {
            (peer, Vec::new())
        } else {
            (Vec::new(), peer)
        };
        Self {
            group: transfer.group.clone(),
            purpose: transfer.purpose.clone(),
            op: transfer.op.clone(),
            seq: transfer.seq,
            waiting: vec![transfer.rank],
            behind,
            unobserved,
            unknown: Vec::new(),
            is_transfer: true,
        }
    }
}

#[cfg(test)]
mod tests;
