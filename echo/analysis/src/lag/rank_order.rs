//! In which place each rank came: what is left to go by where ranks are too few for a scale.
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

/// Ranks up to which places are worth their cost; above it the scatter of the ranks is a scale.
pub const FEW_RANKS: usize = 8;

/// Order of one rank among its peers over a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankPlace {
    /// Distance of its mean place from the middle, in standard deviations (see [`place_z`]).
    pub z: f64,
    /// Rounds that it is known from.
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

/// Gives every rank of a small cohort its place over the blocks, unless the one that it has says
/// more.
///
/// Few blocks cannot prove much about few ranks, and a fault that pauses needs more of them than
/// one that is new: who looks at two windows asks for twice the certainty.
pub fn assign(signal: Signal, blocks: &[&CohortBlock], lags: &mut [Lag]) {
    if lags.len() > FEW_RANKS {
        return;
    }
    // Of several communicators that one counts in which a rank is latest: it is on time in others
    // only because its group was late together.
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

/// Lag of a rank when it was least late, milliseconds at one operation: occasional pauses leave
/// nothing of it. `None` where the signal does not show single operations of the rank.
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
                // Each of an iteration's operations sees the same lateness again: they are one
                // round.
                let of_rank = |(rank, (summary, _)): (&Rank, &(_, _))| {
                    device(*rank, *summary, transfer.iterations)
                };
                let kind = Kind::Transfer(transfer.comm, transfer.op.as_ref());
                (kind, transfer.ranks.iter().filter_map(of_rank).collect())
            });
            // Only an iteration as a whole shows who was last in it: most of its operations see
            // nothing of a lateness that the first had.
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

/// The late spend least time inside, so the signs are turned round.
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
