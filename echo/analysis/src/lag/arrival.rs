//! Lags by arrival at the same operations.

use std::collections::BTreeMap;

use echo_core::model::detector_output::Signal;
use echo_core::stats::{lower_median, mean};

use super::{ByRank, Lag, Lags};
use crate::assembly::{CohortBlock, Member};

/// Compares the arrivals of a window.
pub(super) fn lags(blocks: &[&CohortBlock]) -> Option<Lags> {
    let mut series: ByRank<Vec<f64>> = ByRank::default();
    let mut center = Vec::new();
    for block in blocks {
        let Some((middle, arrivals)) = comparable_arrivals(block) else {
            continue;
        };
        center.push(middle);
        let mut pass = series.pass();
        for (member, mean_ms) in arrivals {
            pass.entry(member.rank, Vec::new).push(mean_ms - middle);
        }
    }
    // A comparison needs most of the window: the blocks before the first common completion have
    // none.
    if center.len() * 2 < blocks.len() {
        return None;
    }
    let ranks = series.iter().filter_map(|(rank, lags)| {
        let mean_ms = mean(lags)?;
        Some(Lag { rank, mean_ms })
    });
    Some(Lags {
        signal: Signal::Arrival,
        ranks: ranks.collect(),
        center_ms: mean(&center)?,
    })
}

/// The members whose clocks start at the same completion, and the median of their arrivals.
fn comparable_arrivals(block: &CohortBlock) -> Option<(f64, Vec<(&Member, f64)>)> {
    let mut by_anchor: BTreeMap<u64, Vec<(&Member, f64)>> = BTreeMap::new();
    for member in &block.members {
        if let Some(arrival) = member.arrival {
            by_anchor
                .entry(arrival.anchor_seq)
                .or_default()
                .push((member, arrival.mean_ms));
        }
    }
    let arrivals = by_anchor.into_values().max_by_key(Vec::len)?;
    let enough = arrivals.len() >= 2 && arrivals.len() * 2 > block.members.len();
    let middle = lower_median(&arrivals.iter().map(|(_, ms)| *ms).collect::<Vec<f64>>())?;
    enough.then_some((middle, arrivals))
}
