//! In which place each rank came: what is left to go by where ranks are too few for a scale.
//!
//! A block counts as one round. Where the extremes of its samples prove that one rank was later than every peer in all
//! of them, it counts as that many rounds: blocks alone must already give right verdicts.

use std::collections::BTreeMap;

use crate::analysis::assembly::{CohortBlock, Member};
use crate::analysis::lag::Lag;
use crate::ids::Rank;
use crate::model::conclusion::Signal;
use crate::model::event::Summary;
use crate::stats::lower_median;
use crate::stats::order::{place_z, places};

/// Ranks up to which places are worth their cost; above it the scatter of the ranks is a scale.
pub const FEW_RANKS: usize = 8;

/// How one rank came in over a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// How far its mean place lies behind the middle, in standard deviations (see [`place_z`]).
    pub z: f64,
    /// Rounds that it is known from.
    pub rounds: f64,
    /// Share of the rounds in which it was last, 0 to 1.
    pub last_share: f64,
}

/// What one rank showed in one block: the later, the larger.
#[derive(Debug, Clone, Copy)]
struct Shown {
    rank: Rank,
    mean: f64,
    least: f64,
    most: f64,
    count: f64,
}

/// Gives every rank of a small cohort its place over the blocks, unless the one that it has says more.
///
/// Few blocks cannot prove much about few ranks, and a fault that pauses needs more of them than one that is new: who
/// looks at two windows asks for twice the certainty.
pub fn assign(signal: Signal, blocks: &[&CohortBlock], lags: &mut [Lag]) {
    if lags.len() > FEW_RANKS {
        return;
    }
    let mut sums: BTreeMap<Rank, Place> = BTreeMap::new();
    for shown in blocks.iter().flat_map(|block| shown(signal, block)) {
        add(&shown, &mut sums);
    }
    // A rank that is judged by something else has no place among these.
    for lag in lags.iter_mut().filter(|lag| lag.signal == signal) {
        let place = sums.get(&lag.rank).map(|sum| Place {
            z: sum.z / sum.rounds.sqrt(),
            rounds: sum.rounds,
            last_share: sum.last_share / sum.rounds,
        });
        if lag.place.map(|place| place.z) < place.map(|place| place.z) {
            lag.place = place;
        }
    }
}

/// How late a rank was even when it was least late, milliseconds at one operation: pauses now and then leave nothing of it.
/// Nothing where the signal does not show single operations of the rank.
pub fn least_lag_ms(signal: Signal, blocks: &[&CohortBlock], rank: Rank) -> Option<f64> {
    let of_kind = |shown: Vec<Shown>| {
        let own = shown.iter().find(|one| one.rank == rank)?.least;
        let means: Vec<f64> = shown.iter().map(|one| one.mean).collect();
        Some(own - lower_median(&means)?)
    };
    let of_block = |block: &&CohortBlock| {
        let kinds = shown(signal, block).into_iter().filter_map(of_kind);
        kinds.max_by(f64::total_cmp)
    };
    let of_blocks = blocks.iter().filter_map(of_block);
    of_blocks.min_by(f64::total_cmp)
}

fn add(shown: &[Shown], sums: &mut BTreeMap<Rank, Place>) {
    if shown.len() < 2 {
        return;
    }
    let latest = shown.iter().max_by(|a, b| a.mean.total_cmp(&b.mean));
    let rounds = latest.map_or(1.0, |latest| {
        let others = shown.iter().filter(|other| other.rank != latest.rank);
        let is_apart = others.clone().all(|other| latest.least > other.most);
        let counts = shown.iter().map(|one| one.count);
        if is_apart {
            counts.fold(f64::MAX, f64::min).max(1.0)
        } else {
            1.0
        }
    });
    let means: Vec<f64> = shown.iter().map(|one| one.mean).collect();
    for (one, place) in shown.iter().zip(places(&means)) {
        let is_last = latest.is_some_and(|latest| latest.rank == one.rank);
        let sum = sums.entry(one.rank).or_insert(Place {
            z: 0.0,
            rounds: 0.0,
            last_share: 0.0,
        });
        sum.z += place_z(place, shown.len(), 1.0).unwrap_or(0.0) * rounds;
        sum.rounds += rounds;
        sum.last_share += if is_last { rounds } else { 0.0 };
    }
}

/// What the ranks showed in a block, by communicator.
fn shown(signal: Signal, block: &CohortBlock) -> Vec<Vec<Shown>> {
    match signal {
        Signal::HostGap | Signal::Wait => vec![block.members.iter().filter_map(gap).collect()],
        Signal::Arrival => vec![block.members.iter().filter_map(arrival).collect()],
        Signal::DeviceWait => {
            let transfers = block.transfers.iter();
            transfers
                .map(|transfer| {
                    // Each of an iteration's operations sees the same lateness again: they are one round.
                    let of_rank = |(rank, (summary, _)): (&Rank, &(_, _))| {
                        device(*rank, *summary, transfer.iterations)
                    };
                    transfer.ranks.iter().filter_map(of_rank).collect()
                })
                .collect()
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one block stay far below 2^53"
)]
fn gap(member: &Member) -> Option<Shown> {
    let gap = member.gap?;
    let mean = gap.mean()?;
    Some(Shown {
        rank: member.rank,
        mean,
        least: gap.min.unwrap_or(mean),
        most: gap.max.unwrap_or(mean),
        count: gap.count as f64,
    })
}

fn arrival(member: &Member) -> Option<Shown> {
    let mean = member.arrival?.mean_ms;
    Some(Shown {
        rank: member.rank,
        mean,
        least: mean,
        most: mean,
        count: 1.0,
    })
}

/// The late spend least time inside, so the signs are turned round.
fn device(rank: Rank, summary: Summary, iterations: f64) -> Option<Shown> {
    let mean = summary.mean()?;
    Some(Shown {
        rank,
        mean: -mean,
        least: -summary.max.unwrap_or(mean),
        most: -summary.min.unwrap_or(mean),
        count: iterations,
    })
}

#[cfg(test)]
mod tests;
