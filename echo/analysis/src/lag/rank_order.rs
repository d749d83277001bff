//! Rank order over the blocks of a window: the test for cohorts with too few ranks for a scale.
//!
//! A block counts as one round. Where the extremes of its samples prove that one rank was later
//! than every peer in all of them, it counts as that many rounds: blocks alone must already give
//! right verdicts.

use std::collections::BTreeMap;

use echo_core::ids::{CommId, Op, Rank};
use echo_core::model::detector_output::Signal;
use echo_core::model::event::{Source, Summary};
use echo_core::stats::lower_median;
use echo_core::stats::order::{place_z, places};

use crate::assembly::{CohortBlock, Member};
use crate::lag::Lag;

/// Maximum number of ranks for which the rank order is computed. With more ranks, their scatter is
/// a scale.
pub const FEW_RANKS: usize = 8;

/// Order of one rank among its peers over a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankPlace {
    /// Distance of its mean place from the middle, in standard deviations (see [`place_z`]).
    pub z: f64,
    /// Number of rounds compared.
    pub rounds: f64,
    /// Share of the rounds in which it was last, 0 to 1.
    pub last_share: f64,
}

/// Measurement by which ranks are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind<'b> {
    /// Measurements of their hosts.
    Host,
    /// Time that their GPUs were inside one kind of operation of one communicator.
    Transfer(CommId, Option<&'b Op>),
    /// Time that their GPUs were inside any operation, iteration by iteration.
    Blocked,
}

/// Observation of one rank in one block: the later the rank, the larger.
#[derive(Debug, Clone, Copy)]
struct Observation {
    rank: Rank,
    mean: f64,
    least: f64,
    most: f64,
    count: f64,
}

/// Sets the place of every rank of a small cohort over the blocks, unless its known place is more
/// significant.
///
/// Few blocks cannot prove much about few ranks, and an intermittent fault needs more blocks than a
/// new one. Both windows are tested, so each must reach twice the significance.
pub fn assign(signal: Signal, blocks: &[&CohortBlock], lags: &mut [Lag]) {
    if lags.len() > FEW_RANKS {
        return;
    }
    // The communicator in which a rank is latest counts: the rank is on time in the others only
    // because the whole group was late.
    let mut kinds: BTreeMap<Kind<'_>, BTreeMap<Rank, RankPlace>> = BTreeMap::new();
    for (kind, observations) in blocks.iter().flat_map(|block| observations(signal, block)) {
        add(&observations, kinds.entry(kind).or_default());
    }
    // A rank that is measured by another signal has no place among these.
    for lag in lags.iter_mut().filter(|lag| lag.signal == signal) {
        let sums = kinds.values().filter_map(|sums| sums.get(&lag.rank));
        let of_kinds = sums.map(|sum| RankPlace {
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

/// Smallest lag of a rank at one operation, milliseconds; near 0 if its lag is due to occasional
/// pauses. `None` if the signal does not show single operations of the rank.
pub fn least_lag_ms(signal: Signal, blocks: &[&CohortBlock], rank: Rank) -> Option<f64> {
    let count_of_kind = |observations: Vec<Observation>| {
        let own = observations.iter().find(|one| one.rank == rank)?.least;
        let means: Vec<f64> = observations.iter().map(|one| one.mean).collect();
        Some(own - lower_median(&means)?)
    };
    let of_block = |block: &&CohortBlock| {
        let of_transfers = |(kind, _): &(Kind<'_>, _)| *kind != Kind::Blocked;
        let observations = observations(signal, block).into_iter().filter(of_transfers);
        let kinds = observations.filter_map(|(_, observations)| count_of_kind(observations));
        kinds.max_by(f64::total_cmp)
    };
    let of_blocks = blocks.iter().filter_map(of_block);
    of_blocks.min_by(f64::total_cmp)
}

fn add(observations: &[Observation], sums: &mut BTreeMap<Rank, RankPlace>) {
    if observations.len() < 2 {
        return;
    }
    let latest = observations.iter().max_by(|a, b| a.mean.total_cmp(&b.mean));
    let rounds = latest.map_or(1.0, |latest| {
        let others = observations
            .iter()
            .filter(|other| other.rank != latest.rank);
        let is_apart = others.clone().all(|other| latest.least > other.most);
        let counts = observations.iter().map(|one| one.count);
        if is_apart {
            counts.fold(f64::MAX, f64::min).max(1.0)
        } else {
            1.0
        }
    });
    let means: Vec<f64> = observations.iter().map(|one| one.mean).collect();
    for (one, place) in observations.iter().zip(places(&means)) {
        let is_last = latest.is_some_and(|latest| latest.rank == one.rank);
        let sum = sums.entry(one.rank).or_insert(RankPlace {
            z: 0.0,
            rounds: 0.0,
            last_share: 0.0,
        });
        sum.z += place_z(place, observations.len(), 1.0).unwrap_or(0.0) * rounds;
        sum.rounds += rounds;
        sum.last_share += if is_last { rounds } else { 0.0 };
    }
}

/// Observations of the ranks in a block, by communicator.
fn observations(signal: Signal, block: &CohortBlock) -> Vec<(Kind<'_>, Vec<Observation>)> {
    let of_members =
        |show: fn(&Member) -> Option<Observation>| block.members.iter().filter_map(show);
    match signal {
        Signal::HostGap | Signal::Wait => vec![(Kind::Host, of_members(gap).collect())],
        Signal::Arrival => vec![(Kind::Host, of_members(arrival).collect())],
        Signal::DeviceWait => {
            let transfers = block.transfers.iter();
            let by_transfer = transfers.map(|transfer| {
                // All operations of an iteration show the same lateness: they are one round.
                let of_rank = |(rank, (summary, _)): (&Rank, &(_, _))| {
                    device(*rank, *summary, transfer.iterations)
                };
                let kind = Kind::Transfer(transfer.comm, transfer.op.as_ref());
                (kind, transfer.ranks.iter().filter_map(of_rank).collect())
            });
            // Only the whole iteration shows which rank was last: most of its operations do not
            // show a lag at the first one.
            let blocked = (Kind::Blocked, of_members(blocked).collect());
            by_transfer.chain([blocked]).collect()
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one block stay far below 2^53"
)]
fn gap(member: &Member) -> Option<Observation> {
    let gap = member.gap?;
    let mean = gap.mean()?;
    Some(Observation {
        rank: member.rank,
        mean,
        least: gap.min.unwrap_or(mean),
        most: gap.max.unwrap_or(mean),
        count: gap.count as f64,
    })
}

fn arrival(member: &Member) -> Option<Observation> {
    let mean = member.arrival?.mean_ms;
    Some(Observation {
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
fn blocked(member: &Member) -> Option<Observation> {
    let by_gpu = member.blocked_source == Some(Source::Device);
    let blocked = member.blocked.filter(|_| by_gpu)?;
    device(member.rank, blocked, blocked.count as f64)
}

/// Late ranks spend the least time inside, so the signs are inverted.
fn device(rank: Rank, summary: Summary, iterations: f64) -> Option<Observation> {
    let mean = summary.mean()?;
    Some(Observation {
        rank,
        mean: -mean,
        least: -summary.max.unwrap_or(mean),
        most: -summary.min.unwrap_or(mean),
        count: iterations,
    })
}

#[cfg(test)]
mod tests;
