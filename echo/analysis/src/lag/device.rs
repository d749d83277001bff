//! Lags by the time that GPUs spent inside the same collectives.
//!
//! Collectives overlap with computation, and each of an iteration's operations shows the same
//! lateness again: the lag summed over an iteration distinguishes late ranks from the others, but
//! it is not the loss. The loss is that of the period.

use std::collections::BTreeMap;
use std::sync::Arc;

use echo_core::ids::{CommId, Op, Rank};
use echo_core::model::detector_output::Signal;
use echo_core::model::event::{Origin, Summary};
use echo_core::stats::{lower_median, median, standard_error, upper_median};

use super::{Lag, Lags};
use crate::assembly::{CohortBlock, Transfer};

/// Returns true if most of the ranks are measured by their GPUs in most of the blocks.
pub(super) fn is_measured(blocks: &[&CohortBlock]) -> bool {
    let is_measured = |block: &&&CohortBlock| {
        let of_rank = |rank: &Rank| {
            let comparable = block.transfers.iter().filter(|one| one.ranks.len() >= 2);
            comparable
                .into_iter()
                .any(|one| one.ranks.contains_key(rank))
        };
        let n = block
            .members
            .iter()
            .filter(|member| of_rank(&member.rank))
            .count();
        n > 0 && n * 2 >= block.members.len()
    };
    blocks.iter().filter(is_measured).count() * 2 > blocks.len()
}

/// A communicator and an operation.
type Kind<'t> = (CommId, Option<&'t Op>);

/// Lags of one rank in one kind of collective.
#[derive(Debug, Default)]
struct Series {
    lag_ms: f64,
    largest_ms: f64,
    iterations: f64,
    operations: f64,
    /// Lag of the rank in each block at the operation where it is largest, milliseconds.
    largest_at_one_ms: Vec<f64>,
    /// Milliseconds per iteration of each block, latest first.
    blocks: Vec<f64>,
}

/// Compares the times inside collectives of a window. The communicator in which a rank is latest
/// counts: the rank is on time in the others only because the whole group was late.
pub(super) fn lags(blocks: &[&CohortBlock]) -> Option<Lags> {
    let mut series: BTreeMap<Rank, BTreeMap<Kind<'_>, Series>> = BTreeMap::new();
    let mut centers = Vec::new();
    for transfer in blocks.iter().flat_map(|block| &block.transfers) {
        let Some(compared) = compared(transfer) else {
            continue;
        };
        centers.push(compared.center_ms);
        let at_one_ms = largest_at_one_ms(transfer);
        for (rank, lag_ms) in compared.lags {
            let key = (transfer.comm, transfer.op.as_ref());
            let one = series.entry(rank).or_default().entry(key).or_default();
            one.lag_ms += lag_ms;
            one.largest_ms = one.largest_ms.max(lag_ms);
            one.iterations += transfer.iterations;
            one.operations += compared.operations;
            one.blocks.push(lag_ms / transfer.iterations);
            one.largest_at_one_ms.extend(at_one_ms.get(&rank));
        }
    }
    let latest = latest_of_each_comm(&series);
    let origins = origins(blocks);
    let ranks: Vec<Lag> = series
        .into_iter()
        .filter_map(|(rank, kinds)| {
            let own = in_each_comm(&kinds).into_iter();
            let waits = own.map(|(comm, own_ms)| latest.get(&comm).map_or(0.0, |ms| ms - own_ms));
            let waits_for_ms = waits.max_by(f64::total_cmp);
            let latest = kinds
                .into_values()
                .max_by(|a, b| a.per_iteration_ms().total_cmp(&b.per_iteration_ms()))?;
            let lag = latest.into_lag(rank, Arc::clone(origins.get(&rank)?));
            Some(Lag {
                waits_for_ms,
                ..lag
            })
        })
        .collect();
    let center_ms = median(&centers)?;
    (ranks.len() >= 2).then_some(Lags {
        signal: Signal::DeviceWait,
        ranks,
        center_ms,
    })
}

/// Lag of a rank in each communicator, milliseconds per iteration. Kinds of operations alternate in
/// an iteration, so a rank that is late at one kind and early at another is late by the difference.
fn in_each_comm(kinds: &BTreeMap<Kind<'_>, Series>) -> BTreeMap<CommId, f64> {
    let mut comms = BTreeMap::new();
    for ((comm, _), own) in kinds {
        *comms.entry(*comm).or_default() += own.per_iteration_ms();
    }
    comms
}

/// Lag of the latest rank in each communicator, milliseconds per iteration.
fn latest_of_each_comm(
    series: &BTreeMap<Rank, BTreeMap<Kind<'_>, Series>>,
) -> BTreeMap<CommId, f64> {
    let mut latest: BTreeMap<CommId, f64> = BTreeMap::new();
    for (comm, own_ms) in series.values().flat_map(in_each_comm) {
        let most = latest.entry(comm).or_insert(f64::MIN);
        *most = most.max(own_ms);
    }
    latest
}

impl Series {
    fn per_iteration_ms(&self) -> f64 {
        self.lag_ms / self.iterations
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "blocks of one window stay far below 2^53"
    )]
    fn into_lag(self, rank: Rank, origin: Arc<Origin>) -> Lag {
        let mean_ms = self.per_iteration_ms();
        let n = self.blocks.len() as f64;
        let steady_ms = if self.blocks.len() > 1 {
            (self.lag_ms - self.largest_ms) / (self.iterations * (n - 1.0) / n)
        } else {
            mean_ms
        };
        Lag {
            rank,
            origin,
            signal: Signal::DeviceWait,
            mean_ms,
            steady_ms,
            operations: self.operations / self.iterations,
            largest_at_one_ms: lower_median(&self.largest_at_one_ms).map(|ms| ms.max(0.0)),
            error_ms: standard_error(&self.blocks),
            own_ms: None,
            waits_for_ms: None,
            place: None,
            series: self.blocks,
        }
    }
}

/// Lags at one kind of collective in one block.
pub(super) struct Compared {
    /// Median time inside, milliseconds per iteration.
    pub(super) center_ms: f64,
    /// Operations of the block.
    pub(super) operations: f64,
    /// Lag of each rank, milliseconds over all operations.
    pub(super) lags: Vec<(Rank, f64)>,
}

/// Compares the ranks of one kind of collective in one block; `None` when there are none to
/// compare. Late ranks spend the least time inside, so the upper median is that of a healthy rank.
pub(super) fn compared(transfer: &Transfer) -> Option<Compared> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of one block stay far below 2^53"
    )]
    let count = |summary: &Summary| summary.count as f64;
    // Records may be lost. A rank with some missing records has not spent less time inside, and a
    // rank with most records missing is not compared.
    let counts: Vec<f64> = transfer.ranks.values().map(|(one, _)| count(one)).collect();
    let usual = median(&counts)?;
    let times: Vec<(Rank, f64)> = transfer
        .ranks
        .iter()
        .filter(|(_, (summary, _))| count(summary) * 2.0 >= usual)
        .filter_map(|(rank, (summary, _))| Some((*rank, summary.mean()? * usual)))
        .collect();
    let center = upper_median(&times.iter().map(|(_, ms)| *ms).collect::<Vec<f64>>())?;
    let n_compared = times.len();
    let lags = times.into_iter().map(|(rank, ms)| (rank, center - ms));
    (n_compared >= 2).then(|| Compared {
        center_ms: center / transfer.iterations,
        operations: usual,
        lags: lags.collect(),
    })
}

/// Largest possible lag of each rank at one operation, milliseconds: its longest time inside one
/// operation, subtracted from that of its peers.
fn largest_at_one_ms(transfer: &Transfer) -> BTreeMap<Rank, f64> {
    let longest = transfer.ranks.iter();
    let longest = longest.filter_map(|(rank, (summary, _))| Some((*rank, summary.max?)));
    let longest: BTreeMap<Rank, f64> = longest.collect();
    let Some(usual) = upper_median(&longest.values().copied().collect::<Vec<f64>>()) else {
        return BTreeMap::new();
    };
    longest
        .into_iter()
        .map(|(rank, ms)| (rank, usual - ms))
        .collect()
}

fn origins(blocks: &[&CohortBlock]) -> BTreeMap<Rank, Arc<Origin>> {
    let members = blocks.iter().flat_map(|block| &block.members);
    members
        .map(|member| (member.rank, Arc::clone(&member.origin)))
        .collect()
}
