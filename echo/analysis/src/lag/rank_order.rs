//! In which place each rank came: what is left to go by where ranks are too few for a scale.
//!
//! A block counts as one round. Where the extremes of its samples prove that one rank was later than every peer in all
//! of them, it counts as that many rounds: blocks alone must already give right verdicts.

use std::collections::BTreeMap;

use echo_core::ids::{CommId, Op, Rank};
use echo_core::model::detector_output::Signal;
use echo_core::model::event::{Source, Summary};
use echo_core::stats::lower_median;
use echo_core::stats::order::{place_z, places};

use crate::assembly::{CohortBlock, Member};
use crate::lag::Lag;

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

/// What ranks are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind<'b> {
    /// What their hosts showed.
    Host,
    /// Time that their GPUs were inside one kind of operation of one communicator.
    Transfer(CommId, Option<&'b Op>),
    /// Time that their GPUs were inside any operation, iteration by iteration.
    Blocked,
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
    // Of several communicators that one counts in which a rank is latest: it is on time in others only because its group was late together.
    let mut kinds: BTreeMap<Kind<'_>, BTreeMap<Rank, Place>> = BTreeMap::new();
    for (kind, shown) in blocks.iter().flat_map(|block| shown(signal, block)) {
        add(&shown, kinds.entry(kind).or_default());
    }
    // A rank that is judged by something else has no place among these.
    for lag in lags.iter_mut().filter(|lag| lag.signal == signal) {
        let sums = kinds.values().filter_map(|sums| sums.get(&lag.rank));
        let of_kinds = sums.map(|sum| Place {
            z: sum.z / sum.rounds.sqrt(),
            rounds: sum.rounds,
            last_share: sum.last_share / sum.rounds,
        });
        let place = of_kinds.max_by(|a, b| a.z.total_cmp(&b.z));
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
        let of_transfers = |(kind, _): &(Kind<'_>, _)| *kind != Kind::Blocked;
        let shown = shown(signal, block).into_iter().filter(of_transfers);
        let kinds = shown.filter_map(|(_, shown)| of_kind(shown));
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
fn shown(signal: Signal, block: &CohortBlock) -> Vec<(Kind<'_>, Vec<Shown>)> {
    let of_members = |show: fn(&Member) -> Option<Shown>| block.members.iter().filter_map(show);
    match signal {
        Signal::HostGap | Signal::Wait => vec![(Kind::Host, of_members(gap).collect())],
        Signal::Arrival => vec![(Kind::Host, of_members(arrival).collect())],
        Signal::DeviceWait => {
            let transfers = block.transfers.iter();
            let by_transfer = transfers.map(|transfer| {
                // Each of an iteration's operations sees the same lateness again: they are one round.
                let of_rank = |(rank, (summary, _)): (&Rank, &(_, _))| {
                    device(*rank, *summary, transfer.iterations)
                };
                let kind = Kind::Transfer(transfer.comm, transfer.op.as_ref());
                (kind, transfer.ranks.iter().filter_map(of_rank).collect())
            });
            // Only an iteration as a whole shows who was last in it: most of its operations see nothing of a lateness that the first had.
            let blocked = (Kind::Blocked, of_members(blocked).collect());
            by_transfer.chain([blocked]).collect()
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

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one block stay far below 2^53"
)]
fn blocked(member: &Member) -> Option<Shown> {
    let by_gpu = member.blocked_source == Some(Source::Device);
    let blocked = member.blocked.filter(|_| by_gpu)?;
    device(member.rank, blocked, blocked.count as f64)
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
