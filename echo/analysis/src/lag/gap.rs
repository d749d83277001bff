//! Lags by host gap, and by wait for a rank without gaps.

use echo_core::model::detector_output::Signal;
use echo_core::stats::{lower_median, median};

use super::{Lag, Lags, Totals};
use crate::assembly::CohortBlock;

/// Compares the host gaps of a window. A rank is late behind the lower median.
pub(super) fn lags(blocks: &[&CohortBlock]) -> Option<Lags> {
    let iterations: f64 = blocks.iter().map(|block| block.iterations).sum();
    let gaps = Totals::from_blocks(blocks, |member| member.gap);
    let waits = Totals::from_blocks(blocks, |member| member.blocked);
    let gap_means = gaps.means();
    let center = lower_median(&gap_means.values().copied().collect::<Vec<f64>>())?;
    let usual_wait = median(&waits.means().values().copied().collect::<Vec<f64>>());
    let rate = gaps.typical_count() / iterations;
    #[expect(clippy::cast_precision_loss, reason = "blocks of one window are few")]
    let n_blocks = blocks.len() as f64;
    let ranks = gaps.0.iter().filter_map(|(rank, _)| {
        let mean = if let Some(own) = gap_means.get(rank) {
            own - center
        } else {
            // A rank that is sometimes blocked, but hardly where its peers are, arrives last and
            // has nothing to wait for. A rank that is never blocked works differently and cannot be
            // compared. A rank with missing reports is not compared either.
            let own = waits.0.get(rank).filter(|wait| wait.count > 0.0)?;
            if own.n_blocks < n_blocks {
                return None;
            }
            usual_wait? - own.sum / waits.typical_count()
        };
        Some(Lag {
            rank,
            mean_ms: mean * rate,
        })
    });
    Some(Lags {
        signal: Signal::HostGap,
        ranks: ranks.collect(),
        center_ms: center * rate,
    })
}
