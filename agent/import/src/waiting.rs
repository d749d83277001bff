//! Waiting of the ranks of a group for one another, and the ranks that arrive last together, by
//! durations: a node that is late as a whole.

use serde::{Deserialize, Serialize};

use crate::lateness::{CLEARLY, MIN_OPS, MIN_TIME_SHARE};
use crate::matching::MatchedGroup;
use crate::trace::Collective;

/// Least number of ranks of which some can be late together, at least two and at most half of them.
const MIN_RANKS: usize = 4;

/// Waiting in the group whose ranks wait most. Operations that run beside computation count as well, so
/// it is not the time that the job lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Name of the group.
    pub group: String,
    /// Sum over its ranks and operations, beyond the shortest duration of each operation, GPU-seconds.
    pub gpu_s: f64,
    /// Share of the traced time of its ranks; `None` if the format has no times. Operations side by side
    /// count each.
    pub share: Option<f64>,
    /// Ranks that arrive last by turns, if none does so at most operations.
    pub by_turns: Option<ByTurns>,
}

/// Ranks that arrive last by turns, as with work that is uneven from step to step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByTurns {
    /// Number of ranks that arrive clearly after all others at some operation.
    pub n_ranks: usize,
    /// Number of these operations.
    pub n_ops: usize,
}

/// Ranks that arrive together, after the others of their group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LateTogether {
    /// Ranks, at least two and at most half of the group.
    pub ranks: Vec<u32>,
    /// Name of the group.
    pub group: String,
    /// Number of operations of the kind that was compared.
    pub n_ops: usize,
    /// Number of ranks of the group with a trace.
    #[serde(default)]
    pub n_ranks: usize,
    /// Number of operations at which they arrived clearly after all others.
    pub n_last: usize,
    /// Number of operations before the first one of these.
    #[serde(default)]
    pub n_before: usize,
    /// Mean delay behind the others at these operations, milliseconds.
    pub lag_ms: f64,
    /// Share of the traced time that the delays take, 0 to 1; `None` if the format has no times.
    pub time_share: Option<f64>,
}

impl LateTogether {
    /// Its ranks, as they are named in a sentence.
    pub fn noun(&self) -> String {
        fleet_hang::noun(&self.ranks)
    }
}

/// Returns the waiting in the group whose ranks wait most; `None` without a group that can be compared.
pub(crate) fn waiting(groups: &[MatchedGroup<'_>]) -> Option<Waiting> {
    let comparable = groups.iter().filter(|group| group.is_comparable());
    let all = comparable.map(of_group);
    all.max_by(|a, b| a.gpu_s.total_cmp(&b.gpu_s))
}

fn of_group(group: &MatchedGroup<'_>) -> Waiting {
    let waits = group.ops.iter().flat_map(|(_, ops)| waits_ms(ops));
    let gpu_s = waits.sum::<f64>() / 1e3;
    let traced_ms: Option<f64> = (0..group.ranks.len()).map(|at| group.span_ms(at)).sum();
    Waiting {
        group: group.name.to_owned(),
        gpu_s,
        share: traced_ms.map(|traced_ms| gpu_s * 1e3 / traced_ms),
        by_turns: by_turns(group),
    }
}

/// Returns the ranks that arrive last by turns: at least three, each at no more than half of the operations.
fn by_turns(group: &MatchedGroup<'_>) -> Option<ByTurns> {
    let mut n_last = vec![0; group.ranks.len()];
    for last in group.ops.iter().filter_map(|(_, ops)| clearly_last(ops)) {
        if let Some(n_last) = n_last.get_mut(last) {
            *n_last += 1;
        }
    }
    let n_ops: usize = n_last.iter().sum();
    let n_ranks = n_last.iter().filter(|n_last| **n_last > 0).count();
    let most = n_last.iter().max().copied().unwrap_or(0);
    (n_ops >= MIN_OPS && n_ranks > 2 && most * 2 <= n_ops).then_some(ByTurns { n_ranks, n_ops })
}

/// Returns which rank of an operation arrives last, if all others wait for a good part of it.
#[expect(clippy::cast_precision_loss, reason = "a duration")]
fn clearly_last(ops: &[&Collective]) -> Option<usize> {
    let waits = waits_ms(ops);
    let (last, _) = waits.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
    let mut others = waits.iter().zip(ops).enumerate();
    others
        .all(|(at, (wait_ms, op))| at == last || *wait_ms > CLEARLY * op.duration_ns as f64 / 1e6)
        .then_some(last)
}

/// Returns the ranks that arrive last together, in the group in which their lag is largest.
pub(crate) fn late_together(groups: &[MatchedGroup<'_>]) -> Option<LateTogether> {
    let comparable = groups.iter().filter(|group| group.is_comparable());
    let late = comparable.filter_map(|group| {
        let kinds = group.by_kind();
        let late = kinds.iter().filter_map(|ops| late_at(group, ops));
        late.max_by(|a, b| a.lag_ms.total_cmp(&b.lag_ms))
    });
    late.max_by(|a, b| a.lag_ms.total_cmp(&b.lag_ms))
}

/// Waiting of each rank at one operation, milliseconds.
#[expect(clippy::cast_precision_loss, reason = "a duration")]
fn waits_ms(ops: &[&Collective]) -> Vec<f64> {
    let shortest = ops.iter().map(|op| op.duration_ns).min().unwrap_or(0);
    let beyond = ops.iter().map(|op| op.duration_ns - shortest);
    beyond.map(|ns| ns as f64 / 1e6).collect()
}

/// Values of the ranks on one side of a split.
fn of(side: &[(f64, usize)], values: &[f64]) -> impl Iterator<Item = f64> {
    side.iter().filter_map(|(_, at)| values.get(*at).copied())
}

/// Splits the ranks where their sums of waiting differ most, and returns those that wait less if they arrive
/// after all others at most of these operations.
#[expect(clippy::cast_precision_loss, reason = "counts and durations")]
fn late_at(group: &MatchedGroup<'_>, ops: &[&[&Collective]]) -> Option<LateTogether> {
    let n = group.ranks.len();
    if n < MIN_RANKS {
        return None;
    }
    let waits: Vec<Vec<f64>> = ops.iter().map(|ops| waits_ms(ops)).collect();
    let sum = |at: usize| -> f64 { waits.iter().filter_map(|waits| waits.get(at)).sum() };
    let mut order: Vec<(f64, usize)> = (0..n).map(|at| (sum(at), at)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let gaps = order.windows(2).enumerate().skip(1).take(n / 2 - 1);
    let gap = |pair: &[(f64, usize)]| match pair {
        [(less, _), (more, _)] => more - less,
        _ => 0.0,
    };
    let (last_late, _) = gaps.max_by(|a, b| gap(a.1).total_cmp(&gap(b.1)))?;
    let (late, others) = order.split_at_checked(last_late + 1)?;
    let mean =
        |side: &[(f64, usize)], values: &[f64]| of(side, values).sum::<f64>() / side.len() as f64;
    let (mut n_last, mut n_before, mut lag_ms) = (0_usize, None, 0.0);
    for (before, (waits, ops)) in waits.iter().zip(ops).enumerate() {
        let longest = of(late, waits).fold(0.0, f64::max);
        let shortest = of(others, waits).fold(f64::INFINITY, f64::min);
        let own_ms = mean(others, waits) - mean(late, waits);
        let durations: Vec<f64> = ops.iter().map(|op| op.duration_ns as f64 / 1e6).collect();
        if longest < shortest && own_ms > CLEARLY * mean(others, &durations) {
            n_last += 1;
            n_before.get_or_insert(before);
            lag_ms += own_ms;
        }
    }
    let time_share = group.span_ms(0).map(|span_ms| lag_ms / span_ms);
    let is_late = n_last >= MIN_OPS
        && n_last * 2 > ops.len()
        && time_share.is_none_or(|share| share >= MIN_TIME_SHARE);
    let mut ranks: Vec<u32> = late
        .iter()
        .filter_map(|(_, at)| group.ranks.get(*at).copied())
        .collect();
    ranks.sort_unstable();
    is_late.then(|| LateTogether {
        ranks,
        group: group.name.to_owned(),
        n_ops: ops.len(),
        n_ranks: n,
        n_last,
        n_before: n_before.unwrap_or(0),
        lag_ms: lag_ms / n_last as f64,
        time_share,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fleet_agent_core::event::Op;

    use super::*;
    use crate::matching::matched;
    use crate::trace::RankTrace;

    /// Traces of eight ranks of one group; each spends `ms(rank, operation)` in each of 60 all-reduces,
    /// which end together every 100 ms.
    fn traces(ms: impl Fn(u32, u64) -> u64) -> BTreeMap<u32, RankTrace> {
        let trace = |rank| {
            let op = |seq| {
                let duration_ns = ms(rank, seq) * 1_000_000;
                let end_ns = (seq + 1) * 100_000_000;
                Collective {
                    group: "world".to_owned(),
                    seq: Some(seq),
                    op: Op::AllReduce,
                    size: 1,
                    start_ns: Some(end_ns - duration_ns),
                    duration_ns,
                }
            };
            RankTrace {
                collectives: (0..60).map(op).collect(),
                ..RankTrace::default()
            }
        };
        (0..8).map(|rank| (rank, trace(rank))).collect()
    }

    fn late(ms: impl Fn(u32, u64) -> u64) -> Option<LateTogether> {
        late_together(&matched(&traces(ms)))
    }

    #[test]
    fn half_of_the_ranks_that_are_late_from_a_step_on_arrive_last_together() {
        let late = late(|rank, seq| match (rank, seq) {
            (0..4, 20..) => 25,
            _ => 5,
        });
        let late = late.unwrap();
        assert_eq!(late.ranks, [4, 5, 6, 7]);
        assert_eq!((late.n_before, late.n_last, late.n_ops), (20, 40, 60));
        assert!((late.lag_ms - 20.0).abs() < 1e-9);
    }

    #[test]
    fn ranks_that_are_late_by_turns_are_not_late_together() {
        let by_turns = |rank: u32, seq: u64| if seq % 8 == u64::from(rank) { 5 } else { 45 };
        assert_eq!(late(by_turns), None);
    }

    #[test]
    fn ranks_that_are_late_by_turns_are_counted_and_one_that_is_late_mostly_is_not() {
        let turns = |ms: &dyn Fn(u32, u64) -> u64| waiting(&matched(&traces(ms))).unwrap().by_turns;
        let by_turns = |rank: u32, seq: u64| if seq % 8 == u64::from(rank) { 5 } else { 45 };
        let all = ByTurns {
            n_ranks: 8,
            n_ops: 60,
        };
        assert_eq!(turns(&by_turns), Some(all));
        let mostly_one = |rank: u32, seq: u64| {
            let late = if seq.is_multiple_of(3) { seq % 8 } else { 2 };
            if late == u64::from(rank) { 5 } else { 45 }
        };
        assert_eq!(turns(&mostly_one), None);
        assert_eq!(turns(&|rank, _| 40 + u64::from(rank)), None);
    }

    #[test]
    fn a_small_difference_or_one_long_wait_makes_no_ranks_late_together() {
        // A tenth of the duration at each operation, 5 % of the time.
        assert_eq!(late(|rank, _| 50 + 5 * u64::from(rank % 2)), None);
        let once = |rank, seq| match (rank, seq) {
            (0..4, 0) => 90,
            (0..4, _) => 6,
            _ => 5,
        };
        assert_eq!(late(once), None);
    }

    #[test]
    fn waiting_is_what_each_operation_took_beyond_its_shortest_duration() {
        let traces = traces(|rank, _| if rank == 3 { 5 } else { 45 });
        let all = waiting(&matched(&traces)).unwrap();
        let waited_s = 7.0 * 60.0 * 0.04;
        assert!((all.gpu_s - waited_s).abs() < 1e-9);
        let share = all.share.unwrap();
        assert!((0.34..0.36).contains(&share), "{share}");
    }
}
