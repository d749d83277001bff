//! Ranks that are usually the last to arrive at the operations of their groups, by durations.
//!
//! The ranks of a collective leave it together, so the last one to arrive spends the least time in
//! it. No clock is compared. A rank that is last because it waits for another group looks the same:
//! with several such ranks, durations alone do not tell the cause from the others. The time for
//! which their GPUs computed does, where the format has it. Ranks that are late together are in
//! [`crate::waiting`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::matching::MatchedGroup;
use crate::trace::{Collective, RankTrace};

/// Share of its group's waiting that a late rank causes.
const MOSTLY: f64 = 0.5;
/// Share of its group's waiting that a rank causes which pauses at few operations.
const NEARLY_ALL: f64 = 0.8;
/// Lag of a late rank, as a share of the time that its peers spend in an operation, and lag behind the next
/// one to arrive, as a share of it: ranks that are late together are not one late rank.
pub(crate) const CLEARLY: f64 = 0.2;
/// Part of its lag for which the GPU of the cause computed longer than those of its peers.
const COMPUTED: f64 = 0.5;
/// Least number of operations from which a rank is listed.
pub(crate) const MIN_OPS: usize = 4;
/// Least share of the traced time that the delays take, if the format has times: the least effect
/// that Echo reports.
pub(crate) const MIN_TIME_SHARE: f64 = 0.02;

/// Rank that usually arrives last in one group, or that pauses at some of its operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LateRank {
    /// Rank.
    pub rank: u32,
    /// Name of the group.
    pub group: String,
    /// Number of ranks of the group with a trace.
    pub n_ranks: usize,
    /// Number of operations of the kind that was compared.
    pub n_ops: usize,
    /// Number of operations at which it was last, or paused.
    pub n_last: usize,
    /// Number of operations before the first one of these.
    #[serde(default)]
    pub n_before: usize,
    /// Share of the group's waiting at these operations.
    pub wait_share: f64,
    /// Mean delay behind the median of its peers at these operations, milliseconds.
    pub lag_ms: f64,
    /// Share of the traced time that the delays take; `None` if the format has no times.
    pub time_share: Option<f64>,
    /// Time for which its GPU computed longer than the median of its peers, as a part of its lag;
    /// `None` if the format has no computation.
    #[serde(default)]
    pub computed_part: Option<f64>,
}

/// Returns the rank that holds back the others: the only late one, or the only one of several whose
/// GPU computed longer than those of its peers.
pub fn cause(late: &[LateRank]) -> Option<&LateRank> {
    let computed = |one: &&LateRank| one.computed_part.is_some_and(|part| part >= COMPUTED);
    let mut causes: Vec<&LateRank> = late.iter().filter(computed).collect();
    if let [only] = late {
        return Some(only);
    }
    causes.pop().filter(|_| causes.is_empty())
}

/// Returns the late ranks in the order of their numbers, one at most per group. A rank that is late
/// in several groups is listed with the one in which its lag is largest.
pub(crate) fn late_ranks(
    traces: &BTreeMap<u32, RankTrace>,
    groups: &[MatchedGroup<'_>],
) -> Vec<LateRank> {
    let comparable = groups.iter().filter(|group| group.is_comparable());
    let mut late: Vec<LateRank> = comparable
        .filter_map(|group| {
            let one = late_rank(group)?;
            let computed_part = computed_part(&one, group, traces);
            Some(LateRank {
                computed_part,
                ..one
            })
        })
        .collect();
    late.sort_by(|a, b| (a.rank.cmp(&b.rank)).then(b.lag_ms.total_cmp(&a.lag_ms)));
    late.dedup_by_key(|one| one.rank);
    late
}

/// Time for which the GPU of a late rank computed longer than the median of its peers, as a part of
/// its lag.
#[expect(clippy::cast_precision_loss, reason = "counts and durations")]
fn computed_part(
    one: &LateRank,
    group: &MatchedGroup<'_>,
    traces: &BTreeMap<u32, RankTrace>,
) -> Option<f64> {
    let busy_ms = |rank: &u32| Some(traces.get(rank)?.busy_ns? as f64 / 1e6);
    let all: Vec<f64> = group.ranks.iter().map(busy_ms).collect::<Option<_>>()?;
    let at = group.ranks.iter().position(|rank| *rank == one.rank)?;
    let longer_ms = all.get(at)? - median_without(&all, at);
    Some(longer_ms / (one.lag_ms * one.n_last as f64))
}

/// Operations at which one rank was last.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    n: usize,
    /// Number of operations before the first one, and before the first pause.
    n_before: Option<usize>,
    n_before_pauses: Option<usize>,
    lag_ms: f64,
    /// Lag behind the next one to arrive.
    alone_ms: f64,
    peers_ms: f64,
    /// Operations at which it alone was clearly last, and its lag at them.
    n_pauses: usize,
    pauses_ms: f64,
}

/// Returns the rank that holds back the others at the operations of one kind, of the kind with most waiting.
fn late_rank(group: &MatchedGroup<'_>) -> Option<LateRank> {
    let kinds = group.by_kind();
    let late = kinds.iter().filter_map(|ops| late_at(group, ops));
    late.max_by(|a, b| a.lag_ms.total_cmp(&b.lag_ms))
}

/// Returns the rank that is last at most of these operations, or that pauses: nearly all of the waiting is
/// for it, at few of them.
#[expect(clippy::cast_precision_loss, reason = "counts and durations")]
fn late_at(group: &MatchedGroup<'_>, ops: &[&[&Collective]]) -> Option<LateRank> {
    let mut by_rank = vec![Last::default(); group.ranks.len()];
    for (before, of_ranks) in ops.iter().enumerate() {
        let times: Vec<f64> = of_ranks
            .iter()
            .map(|op| op.duration_ns as f64 / 1e6)
            .collect();
        let shortest = times.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
        if let Some((at, own_ms)) = shortest
            && let Some(last) = by_rank.get_mut(at)
        {
            let peers_ms = median_without(&times, at);
            last.n += 1;
            last.n_before.get_or_insert(before);
            last.lag_ms += peers_ms - own_ms;
            let alone_ms = least_without(&times, at) - own_ms;
            last.alone_ms += alone_ms;
            if peers_ms - own_ms > CLEARLY * peers_ms && alone_ms > CLEARLY * (peers_ms - own_ms) {
                last.n_pauses += 1;
                last.n_before_pauses.get_or_insert(before);
                last.pauses_ms += peers_ms - own_ms;
            }
            last.peers_ms += peers_ms;
        }
    }
    let all_ms: f64 = by_rank.iter().map(|last| last.lag_ms).sum();
    let by_lag = by_rank.iter().zip(&group.ranks);
    let (last, rank) = by_lag.max_by(|a, b| a.0.lag_ms.total_cmp(&b.0.lag_ms))?;
    let is_usually_last = last.n * 2 > ops.len()
        && last.lag_ms > MOSTLY * all_ms
        && last.lag_ms > CLEARLY * last.peers_ms
        && last.alone_ms > CLEARLY * last.lag_ms;
    let (n_last, n_before, lag_ms) = if is_usually_last {
        (last.n, last.n_before, last.lag_ms)
    } else {
        (last.n_pauses, last.n_before_pauses, last.pauses_ms)
    };
    let time_share = group.span_ms(0).map(|span_ms| lag_ms / span_ms);
    let is_late = n_last >= MIN_OPS
        && (is_usually_last || lag_ms > NEARLY_ALL * all_ms)
        && time_share.is_none_or(|share| share >= MIN_TIME_SHARE);
    is_late.then(|| LateRank {
        rank: *rank,
        group: group.name.to_owned(),
        n_ranks: group.ranks.len(),
        n_ops: ops.len(),
        n_last,
        n_before: n_before.unwrap_or(0),
        wait_share: lag_ms / all_ms,
        lag_ms: lag_ms / n_last as f64,
        time_share,
        computed_part: None,
    })
}

/// Least of all values except one.
fn least_without(values: &[f64], without: usize) -> f64 {
    let others = values.iter().enumerate().filter(|(at, _)| *at != without);
    others
        .map(|(_, value)| *value)
        .fold(f64::INFINITY, f64::min)
}

/// Median of all values except one; 0 without others.
fn median_without(values: &[f64], without: usize) -> f64 {
    let others = values.iter().enumerate().filter(|(at, _)| *at != without);
    let mut others: Vec<f64> = others.map(|(_, value)| *value).collect();
    others.sort_by(f64::total_cmp);
    let upper = others.get(others.len() / 2).copied().unwrap_or(0.0);
    let lower = others
        .len()
        .checked_sub(1)
        .and_then(|last| others.get(last / 2));
    lower.map_or(0.0, |lower| f64::midpoint(*lower, upper))
}

#[cfg(test)]
mod tests {
    use fleet_agent_core::event::Op;

    use super::*;
    use crate::matching::matched;

    fn late_of(traces: &BTreeMap<u32, RankTrace>) -> Vec<LateRank> {
        late_ranks(traces, &matched(traces))
    }

    /// Trace of a rank that spends `ms` in each of eight all-reduces of both groups.
    fn trace(groups: [(&str, u64); 2]) -> RankTrace {
        let ops = groups.into_iter().flat_map(|(group, ms)| {
            (0..8).map(move |seq| Collective {
                group: group.to_owned(),
                seq: Some(seq),
                op: Op::AllReduce,
                size: 1,
                start_ns: None,
                duration_ns: ms * 1_000_000,
            })
        });
        RankTrace {
            collectives: ops.collect(),
            ..RankTrace::default()
        }
    }

    fn late(rank: u32, computed_part: Option<f64>) -> LateRank {
        LateRank {
            rank,
            group: "data".to_owned(),
            n_ranks: 4,
            n_ops: 8,
            n_last: 8,
            n_before: 0,
            wait_share: 1.0,
            lag_ms: 5.0,
            time_share: None,
            computed_part,
        }
    }

    fn cause_of(parts: &[Option<f64>]) -> Option<u32> {
        let late: Vec<LateRank> = (0..)
            .zip(parts)
            .map(|(rank, part)| late(rank, *part))
            .collect();
        cause(&late).map(|one| one.rank)
    }

    #[test]
    fn of_several_late_ranks_the_only_one_that_computed_longer_is_the_cause() {
        assert_eq!(cause_of(&[Some(0.1), Some(0.9), Some(-0.2)]), Some(1));
        assert_eq!(cause_of(&[Some(0.8), Some(0.9)]), None);
        assert_eq!(cause_of(&[None, None]), None);
        assert_eq!(cause_of(&[None]), Some(0));
        assert_eq!(cause_of(&[]), None);
    }

    #[test]
    fn a_rank_that_pauses_at_few_operations_is_late_and_a_single_pause_is_not() {
        let every = |steps: u64| {
            let trace = |rank: u32| {
                let op = |seq: u64| Collective {
                    group: "world".to_owned(),
                    seq: Some(seq),
                    op: Op::AllReduce,
                    size: 1,
                    start_ns: None,
                    duration_ns: match seq % steps {
                        9 if rank != 1 => 400_000_000,
                        // Each rank is the shortest one by turns.
                        _ => 1_000_000 + (u64::from(rank) + seq) % 4 * 1_000,
                    },
                };
                RankTrace {
                    collectives: (0..60).map(op).collect(),
                    ..RankTrace::default()
                }
            };
            let traces = (0..4).map(|rank| (rank, trace(rank))).collect();
            late_of(&traces)
                .iter()
                .map(|one| (one.rank, one.n_last, one.n_before))
                .collect::<Vec<_>>()
        };
        assert_eq!(every(10), [(1, 6, 9)]);
        assert_eq!(every(60), []);
    }

    #[test]
    fn a_rank_that_is_late_in_two_groups_is_listed_once_with_its_larger_lag() {
        let traces = BTreeMap::from([
            (0, trace([("tensor", 3), ("other", 1)])),
            (1, trace([("tensor", 1), ("data", 1)])),
            (2, trace([("data", 9), ("other", 1)])),
        ]);
        let late = late_of(&traces);
        let listed: Vec<_> = late
            .iter()
            .map(|one| (one.rank, one.group.as_str()))
            .collect();
        assert_eq!(listed, [(1, "data")]);
    }
}
