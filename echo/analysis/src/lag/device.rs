//! Lags by the time that GPUs spent inside the same collectives.
//!
//! Collectives overlap with computation, and each of an iteration's operations shows the same
//! lateness again: the lag summed over an iteration distinguishes late ranks from the others, but
//! it is not the loss. The loss is that of the period.

use std::collections::BTreeMap;

use echo_core::ids::{CommId, Op, Rank};
use echo_core::model::detector_output::Signal;
use echo_core::model::event::Summary;
use echo_core::stats::{median, upper_median};

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
    iterations: f64,
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
        for (rank, lag_ms) in compared.lags {
            let key = (transfer.comm, transfer.op.as_ref());
            let one = series.entry(rank).or_default().entry(key).or_default();
            one.lag_ms += lag_ms;
            one.iterations += transfer.iterations;
        }
    }
    let ranks = series.into_iter().filter_map(|(rank, kinds)| {
        let per_iteration = kinds.into_values().map(|one| one.lag_ms / one.iterations);
        let mean_ms = per_iteration.max_by(f64::total_cmp)?;
        Some(Lag { rank, mean_ms })
    });
    let ranks: Vec<Lag> = ranks.collect();
    let center_ms = median(&centers)?;
    (ranks.len() >= 2).then_some(Lags {
        signal: Signal::DeviceWait,
        ranks,
        center_ms,
    })
}

/// Lags at one kind of collective in one block.
pub(super) struct Compared {
    /// Median time inside, milliseconds per iteration.
    pub(super) center_ms: f64,
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
        lags: lags.collect(),
    })
}
