//! Lags by host gap, and by wait for a rank without gaps.

use std::sync::Arc;

use echo_core::ids::Rank;
use echo_core::model::detector_output::Signal;
use echo_core::stats::{lower_median, median, standard_error};

use super::{ByRank, Lag, Lags, Totals};
use crate::assembly::{CohortBlock, Member};

/// Lower medians over ranks of the mean and of the steady mean. A rank is late behind these.
fn centers(means: &ByRank<(f64, f64)>) -> Option<(f64, f64)> {
    let of = |pick: fn(&(f64, f64)) -> f64| {
        lower_median(&means.values().map(pick).collect::<Vec<f64>>())
    };
    Some((of(|pair| pair.0)?, of(|pair| pair.1)?))
}

/// Compares the host gaps of a window.
pub(super) fn lags(blocks: &[&CohortBlock]) -> Option<Lags> {
    let iterations: f64 = blocks.iter().map(|block| block.iterations).sum();
    let gaps = Totals::from_blocks(blocks, |member| member.gap);
    let waits = Totals::from_blocks(blocks, |member| member.blocked);
    let gap_means = gaps.means();
    let center = centers(&gap_means)?;
    let usual_wait = median(
        &waits
            .means()
            .values()
            .map(|pair| pair.0)
            .collect::<Vec<f64>>(),
    );
    let rate = gaps.typical_count() / iterations;
    let series = gap_series(blocks);
    #[expect(clippy::cast_precision_loss, reason = "blocks of one window are few")]
    let n_blocks = blocks.len() as f64;
    let ranks = gaps.0.iter().filter_map(|(rank, total)| {
        let (signal, mean, steady) = if let Some(own) = gap_means.get(rank) {
            (Signal::HostGap, own.0 - center.0, own.1 - center.1)
        } else {
            // A rank that is sometimes blocked, but hardly where its peers are, arrives last and
            // has nothing to wait for. A rank that is never blocked works differently and cannot be
            // compared. A rank with missing reports is not compared either.
            let own = waits.0.get(rank).filter(|wait| wait.count > 0.0)?;
            if own.n_blocks < n_blocks {
                return None;
            }
            let lag = usual_wait? - own.sum / waits.typical_count();
            (Signal::Wait, lag, lag)
        };
        let error = series.get(rank).and_then(|lags| standard_error(lags));
        Some(Lag {
            rank,
            origin: Arc::clone(total.origin),
            signal,
            mean_ms: mean * rate,
            steady_ms: steady * rate,
            operations: 1.0,
            largest_at_one_ms: None,
            error_ms: error.map(|error| error * rate),
            own_ms: None,
            waits_for_ms: None,
            place: None,
            series: series
                .get(rank)
                .map(|lags| lags.iter().map(|lag| lag * rate).collect())
                .unwrap_or_default(),
        })
    });
    Some(Lags {
        signal: Signal::HostGap,
        ranks: ranks.collect(),
        center_ms: center.0 * rate,
    })
}

/// Gap lags of every rank, block by block.
fn gap_series(blocks: &[&CohortBlock]) -> ByRank<Vec<f64>> {
    let mut series: ByRank<Vec<f64>> = ByRank::default();
    for block in blocks {
        let gap = |member: &Member| Some((member.rank, member.gap?.mean()?));
        let gaps: Vec<(Rank, f64)> = block.members.iter().filter_map(gap).collect();
        let center = lower_median(&gaps.iter().map(|(_, ms)| *ms).collect::<Vec<f64>>());
        let mut pass = series.pass();
        for (rank, ms) in gaps {
            pass.entry(rank, || Vec::with_capacity(blocks.len()))
                .push(ms - center.unwrap_or(ms));
        }
    }
    series
}
