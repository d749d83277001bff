//! Attribution of a cohort's lost time to incidents. The loss of each iteration is attributed once,
//! even if its cause changes.
//!
//! Late ranks share the loss of the whole job, including cohorts that only wait for them. A loss
//! attributed to a condition moves to the rank that is later found to cause it; a loss attributed
//! to a rank stays there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use echo_core::ids::{IncidentId, NodeId, Rank, RoleId};
use echo_core::model::detector_output::{Baseline, LostTime};

use crate::assembly::{CohortBlock, CohortKey, Member, PeriodReading};
use crate::attribution::{Share, shares};

/// Largest relative difference in iteration length at which another cohort counts as waiting for
/// the culprit.
const SAME_PACE: f64 = 0.25;

/// An open incident to which a loss can be attributed.
#[derive(Debug, Clone, PartialEq)]
pub struct LossCause {
    /// The incident.
    pub incident: IncidentId,
    /// Role of the cohort in which it was found.
    pub role: RoleId,
    /// Late rank; `None` for a condition.
    pub rank: Option<Rank>,
    /// Lag of the rank, milliseconds per iteration; 0 for conditions.
    pub lag_ms: f64,
    /// Duration of an iteration during the incident, milliseconds.
    pub period_ms: f64,
    /// Healthy duration of an iteration.
    pub baseline: Baseline,
    /// First iteration affected.
    pub first_iteration: f64,
}

/// Cohort whose loss is attributed.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    /// The cohort.
    pub key: &'a CohortKey,
    /// Its blocks, oldest first.
    pub blocks: &'a VecDeque<CohortBlock>,
    /// Healthy duration of an iteration, milliseconds, when known.
    pub healthy_ms: Option<f64>,
    /// Usual blocked time of its ranks, milliseconds per iteration, when known: bubbles and
    /// transfers are no loss.
    pub healthy_blocked_ms: Option<f64>,
}

/// Attributions of the blocks of a cohort to incidents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LossAccounting {
    /// Attribution by the first operation of the block.
    attributed: BTreeMap<u64, Vec<Attributed>>,
    /// Attribution of blocks up to this iteration is final.
    settled_until: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Attributed {
    incident: IncidentId,
    is_rank: bool,
    /// Healthy duration of an iteration that the loss was measured against, milliseconds.
    healthy_ms: f64,
}

impl LossAccounting {
    /// Clears all attributions, except that blocks before the end of an incident stored by an
    /// earlier detector stay final. Losses that it attributed to open incidents are attributed to
    /// them again, with the same result.
    pub fn restart(&mut self, settled_until: f64) {
        self.settled_until = settled_until;
        self.attributed.clear();
    }

    /// Attributes the loss of each block that is not attributed yet, that is attributed to a
    /// condition now known to be caused by a rank, or whose healthy period is known better now. A
    /// row without a loss cancels an earlier one.
    ///
    /// A block faster than a healthy one offsets slower blocks before it, but only once the job is
    /// slow again: until then it may lie after the fault. The loss of an incident is therefore the
    /// largest cumulative sum of its blocks' losses, and ends where a CUSUM (Page 1954) ends it.
    pub fn account_losses(&mut self, account: &Account<'_>, causes: &[LossCause]) -> Vec<LostTime> {
        let first = account.blocks.front().map_or(0, |block| block.seqs.first());
        self.attributed = self.attributed.split_off(&first);
        let mut rows = Vec::new();
        let mut deferred = Vec::new();
        let mut balance_ms = 0.0;
        for block in account.blocks {
            let Some(reading) = &block.period else {
                continue;
            };
            let reasons = reasons(account, block, reading, causes);
            if reasons.is_empty() || !self.is_due(block, &reasons, causes) {
                continue;
            }
            let loss = Loss::from_block(account, block, reading, &reasons);
            balance_ms += loss.lost_ms;
            deferred.push((block.seqs.first(), reasons, loss));
            if balance_ms >= 0.0 {
                balance_ms = 0.0;
                let due = deferred.drain(..);
                rows.extend(
                    due.flat_map(|(seq, reasons, loss)| self.attribute(seq, &reasons, &loss)),
                );
            }
        }
        rows
    }

    /// Attributes the block that begins with operation `seq`, and cancels its earlier attributions.
    fn attribute(&mut self, seq: u64, reasons: &[&LossCause], loss: &Loss<'_>) -> Vec<LostTime> {
        let new: Vec<Attributed> = reasons.iter().map(|reason| attributed(reason)).collect();
        let old = self.attributed.insert(seq, new.clone()).unwrap_or_default();
        let is_gone = |old: &&Attributed| {
            new.iter()
                .all(|attributed| attributed.incident != old.incident)
        };
        let gone = old.iter().filter(is_gone);
        let mut rows: Vec<LostTime> = gone.flat_map(|gone| loss.nothing(gone.incident)).collect();
        rows.extend(loss.rows(reasons));
        rows
    }

    /// Returns true if a block must be attributed to these incidents.
    fn is_due(&self, block: &CohortBlock, reasons: &[&LossCause], causes: &[LossCause]) -> bool {
        if block.end_iteration() <= self.settled_until {
            return false;
        }
        let Some(before) = self.attributed.get(&block.seqs.first()) else {
            return true;
        };
        let is_same = before
            .iter()
            .copied()
            .eq(reasons.iter().map(|reason| attributed(reason)));
        let is_over = |attributed: &Attributed| {
            causes
                .iter()
                .all(|cause| cause.incident != attributed.incident)
        };
        let is_final = before
            .iter()
            .any(|attributed| attributed.is_rank && is_over(attributed));
        let names_ranks = reasons.iter().any(|reason| reason.rank.is_some());
        !is_same && !is_final && names_ranks
    }
}

const fn attributed(cause: &LossCause) -> Attributed {
    Attributed {
        incident: cause.incident,
        is_rank: cause.rank.is_some(),
        healthy_ms: cause.baseline.period_ms(),
    }
}

/// Causes of a block's loss: all ranks of the job that were late by then, else one condition,
/// preferably the cohort's own.
fn reasons<'a>(
    account: &Account<'_>,
    block: &CohortBlock,
    reading: &PeriodReading,
    causes: &'a [LossCause],
) -> Vec<&'a LossCause> {
    let middle = f64::midpoint(block.first_iteration(), block.end_iteration());
    let is_own = |cause: &LossCause| cause.role == account.key.role;
    let keeps_pace = |cause: &LossCause| (reading.ms / cause.period_ms - 1.0).abs() <= SAME_PACE;
    let by_then = || {
        causes
            .iter()
            .filter(|cause| cause.first_iteration < middle && (is_own(cause) || keeps_pace(cause)))
    };
    let ranks: Vec<&LossCause> = by_then().filter(|cause| cause.rank.is_some()).collect();
    if !ranks.is_empty() {
        return ranks;
    }
    let own = by_then().find(|cause| is_own(cause));
    own.or_else(|| by_then().next()).into_iter().collect()
}

/// Loss of a cohort in one block.
struct Loss<'a> {
    account: &'a Account<'a>,
    reading: &'a PeriodReading,
    /// Excess over a healthy block, milliseconds; negative if the block was faster.
    lost_ms: f64,
    /// By node and GPU model.
    groups: BTreeMap<(NodeId, Option<Arc<str>>), Group>,
}

/// GPUs of one model on one node.
#[derive(Debug, Clone, Copy)]
struct Group {
    n_ranks: u32,
    lost_gpu_ms: f64,
    /// `None` when a rank does not report it.
    peer_wait_gpu_ms: Option<f64>,
}

impl<'a> Loss<'a> {
    fn from_block(
        account: &'a Account<'a>,
        block: &CohortBlock,
        reading: &'a PeriodReading,
        reasons: &[&LossCause],
    ) -> Self {
        let against_period = || (reading.ms - healthy_ms(account, reasons)) * reading.iterations;
        let lost_ms = block.excess_ms.unwrap_or_else(against_period);
        let culprits: BTreeSet<Rank> = reasons.iter().filter_map(|reason| reason.rank).collect();
        let usual_ms = usually_blocked_ms(account, block, &culprits);
        let mut groups = BTreeMap::new();
        for member in &block.members {
            let group = (member.origin.node.clone(), member.origin.gpu_model.clone());
            let group = groups.entry(group).or_insert(Group {
                n_ranks: 0,
                lost_gpu_ms: 0.0,
                peer_wait_gpu_ms: Some(0.0),
            });
            group.n_ranks += 1;
            group.lost_gpu_ms += lost_ms;
            if culprits.is_empty() || culprits.contains(&member.rank) {
                continue;
            }
            // A wait that made no iteration longer was overlapped with work, and cost nothing.
            let waited = blocked_ms(member, block).map(|blocked| {
                ((blocked - usual_ms) * reading.iterations).clamp(0.0, lost_ms.max(0.0))
            });
            group.peer_wait_gpu_ms = group
                .peer_wait_gpu_ms
                .zip(waited)
                .map(|(sum, waited)| sum + waited);
        }
        Self {
            account,
            reading,
            lost_ms,
            groups,
        }
    }

    fn rows(&self, reasons: &[&LossCause]) -> Vec<LostTime> {
        let lags: Vec<f64> = reasons.iter().map(|reason| reason.lag_ms).collect();
        let shared = reasons.iter().zip(shares(&lags));
        shared
            .flat_map(|(reason, share)| self.row(reason.incident, (share, reason.rank.is_some())))
            .collect()
    }

    /// Rows that set the loss of an incident to zero here.
    fn nothing(&self, incident: IncidentId) -> Vec<LostTime> {
        let none = Share {
            caused: 0.0,
            saved: 0.0,
        };
        self.row(incident, (none, true))
    }

    fn row(&self, incident: IncidentId, (share, can_be_fixed): (Share, bool)) -> Vec<LostTime> {
        let saved = if can_be_fixed { share.saved } else { 0.0 };
        let row = |((node, gpu_model), group): (&(NodeId, Option<Arc<str>>), &Group)| LostTime {
            incident,
            cluster: self.account.key.cluster.clone(),
            node: node.clone(),
            gpu_model: gpu_model.clone(),
            interval: self.reading.interval,
            n_ranks: group.n_ranks,
            iterations: self.reading.iterations,
            lost_gpu_ms: group.lost_gpu_ms * share.caused,
            peer_wait_gpu_ms: group.peer_wait_gpu_ms.map(|waited| waited * share.caused),
            saved_gpu_ms: group.lost_gpu_ms * saved,
        };
        self.groups.iter().map(row).collect()
    }
}

/// Healthy duration of an iteration, milliseconds: that of the incident, or for another cohort its
/// own, when known.
fn healthy_ms(account: &Account<'_>, reasons: &[&LossCause]) -> f64 {
    let is_own = reasons.iter().any(|reason| reason.role == account.key.role);
    let of_incident = reasons
        .iter()
        .map(|reason| reason.baseline.period_ms())
        .fold(f64::INFINITY, f64::min);
    account
        .healthy_ms
        .filter(|_| !is_own)
        .unwrap_or(of_incident)
}

/// Blocked time of a block's ranks for other reasons than late ranks, milliseconds per iteration:
/// the healthy one; if no healthy iteration was seen, that of the culprit itself, which waits for
/// no other rank; else 0.
fn usually_blocked_ms(
    account: &Account<'_>,
    block: &CohortBlock,
    culprits: &BTreeSet<Rank>,
) -> f64 {
    let of_culprits = || {
        let members = block.members.iter();
        let culprits = members.filter(|member| culprits.contains(&member.rank));
        culprits
            .filter_map(|member| blocked_ms(member, block))
            .reduce(f64::min)
    };
    let usual = account.healthy_blocked_ms.or_else(of_culprits);
    usual.unwrap_or(0.0)
}

/// Time that a rank was blocked, milliseconds per iteration.
pub fn blocked_ms(member: &Member, block: &CohortBlock) -> Option<f64> {
    member.blocked.map(|blocked| blocked.sum / block.iterations)
}
