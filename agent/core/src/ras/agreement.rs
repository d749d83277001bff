//! How far each rank of a communicator is, from its numbers of launched operations by kind.
//!
//! Ranks that run the same program launch the same operations in the same order, and differ only in
//! how far they are: sorted by their sums, no number decreases, and the sum is the progress. Ranks
//! whose numbers do not fit into this order have launched another operation than the others. They
//! count as one operation behind the last of the others.

use std::collections::BTreeMap;

use crate::event::Op;
use crate::ras::{CommStatus, RankStatus};

/// Largest number of distinct rows of numbers that are compared: the time grows with its square.
const MAX_DISTINCT: usize = 2048;

/// Numbers of launched operations in the order of the kinds.
type Launched = Vec<u64>;

/// Progress of the ranks of a communicator.
#[derive(Debug)]
pub(super) struct Agreement {
    kinds: Vec<Op>,
    /// Progress of the rows that do not fit.
    others: BTreeMap<Launched, u64>,
    /// Kind of operation to name: one in which the ranks differ, else the most frequent one.
    pub(super) op: Op,
}

impl Agreement {
    /// Returns `None` if no rank has launched anything.
    pub(super) fn new(comm: &CommStatus) -> Option<Self> {
        let mut counts: BTreeMap<Op, Vec<u64>> = BTreeMap::new();
        for rank in comm.active() {
            for (op, launched) in &rank.launched {
                counts.entry(*op).or_default().push(*launched);
            }
        }
        let differs = |own: &&Vec<u64>| own.iter().any(|count| Some(count) != own.first());
        let differing = counts
            .iter()
            .find(|(_, own)| differs(own))
            .map(|(op, _)| *op);
        let highest = |(op, own): (&Op, &Vec<u64>)| Some((*own.iter().max()?, *op));
        let (launched, most_frequent) = counts.iter().filter_map(highest).max()?;
        if launched == 0 {
            return None;
        }
        let kinds: Vec<Op> = counts.into_keys().collect();
        let mut rows: BTreeMap<Launched, usize> = BTreeMap::new();
        for rank in comm.active() {
            *rows.entry(row(&kinds, rank)).or_default() += 1;
        }
        Some(Self {
            others: unfitting(&rows),
            kinds,
            op: differing.unwrap_or(most_frequent),
        })
    }

    /// Returns how many operations the rank has launched in agreement with its peers.
    pub(super) fn progress(&self, rank: &RankStatus) -> u64 {
        let own = row(&self.kinds, rank);
        let other = self.others.get(&own).copied();
        other.unwrap_or_else(|| sum(&own))
    }
}

fn row(kinds: &[Op], rank: &RankStatus) -> Launched {
    let count = |op| rank.launched.get(op).copied().unwrap_or(0);
    kinds.iter().map(count).collect()
}

fn sum(row: &[u64]) -> u64 {
    row.iter().copied().fold(0, u64::saturating_add)
}

fn is_before(one: &[u64], other: &[u64]) -> bool {
    one.iter().zip(other).all(|(one, other)| one <= other)
}

/// Numbers that both rows have reached.
fn common(one: &[u64], other: &[u64]) -> Launched {
    one.iter()
        .zip(other)
        .map(|(one, other)| *one.min(other))
        .collect()
}

/// Returns the progress of the rows that do not fit into the order of the majority of the ranks. All
/// rows have the same if there is no majority.
fn unfitting(rows: &BTreeMap<Launched, usize>) -> BTreeMap<Launched, u64> {
    let mut sorted: Vec<(&Launched, usize)> = rows.iter().map(|(row, n)| (row, *n)).collect();
    sorted.sort_by_key(|(row, _)| sum(row));
    let in_order = sorted.windows(2).all(|pair| match pair {
        [one, other] => is_before(one.0, other.0),
        _ => true,
    });
    if in_order || sorted.len() > MAX_DISTINCT {
        return BTreeMap::new();
    }
    let fitting = largest_order(&sorted);
    let n_fitting: usize = fitting.iter().filter_map(|row| rows.get(*row)).sum();
    let first = fitting.first().copied();
    let Some(first) = first.filter(|_| n_fitting * 2 > rows.values().sum()) else {
        let all = sorted.iter().map(|(row, _)| (*row).clone());
        let reached = all.clone().reduce(|one, other| common(&one, &other));
        let reached = reached.map_or(0, |reached| sum(&reached));
        return all.map(|row| (row, reached)).collect();
    };
    let behind = sum(first).saturating_sub(1);
    let others = sorted.iter().filter(|(row, _)| !fitting.contains(row));
    others
        .map(|(row, _)| ((*row).clone(), sum(&common(row, first)).min(behind)))
        .collect()
}

/// Returns the rows of the largest number of ranks in which no number decreases.
fn largest_order<'r>(sorted: &[(&'r Launched, usize)]) -> Vec<&'r Launched> {
    // Number of ranks up to each row, and the row before it.
    let mut best: Vec<(usize, Option<usize>)> = Vec::with_capacity(sorted.len());
    for (at, (row, n)) in sorted.iter().enumerate() {
        let before = sorted.iter().zip(&best).enumerate().take(at);
        let before = before.filter(|(_, ((other, _), _))| is_before(other, row));
        let longest = before.map(|(index, (_, (ranks, _)))| (*ranks, index)).max();
        let (ranks, previous) = longest.map_or((0, None), |(ranks, index)| (ranks, Some(index)));
        best.push((ranks + n, previous));
    }
    let end = best.iter().enumerate().max_by_key(|(_, (ranks, _))| *ranks);
    let mut at = end.map(|(index, _)| index);
    let mut order = Vec::new();
    while let Some(index) = at {
        order.extend(sorted.get(index).map(|(row, _)| *row));
        at = best.get(index).and_then(|(_, previous)| *previous);
    }
    order.reverse();
    order
}
