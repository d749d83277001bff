//! History of a process as a reference for itself.

use std::collections::VecDeque;

use crate::classify::reference::{Gates, Reference};
use crate::signal::{Block, CommId, Role, Summary};
use crate::statistics::median;

/// Minimum number of healthy blocks for a reference.
const MIN_BLOCKS: usize = 20;
/// Maximum number of healthy blocks kept.
const MAX_BLOCKS: usize = 128;
/// Number of blocks over which the rate of synchronizations is measured.
const RATE_BLOCKS: usize = 16;
/// Factor from the median absolute deviation to the standard deviation of a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;

/// History of one program on one communicator.
#[derive(Debug, Default)]
pub(super) struct History {
    key: Option<(CommId, Option<Role>)>,
    counts: VecDeque<(f64, f64)>,
    gaps_ms: VecDeque<f64>,
    periods_ms: VecDeque<f64>,
}

impl History {
    /// Resets the history if the communicator or the role has changed.
    pub(super) fn reset_if_changed(&mut self, block: &Block) {
        let key = Some((block.comm, block.role));
        if self.key != key {
            *self = Self {
                key,
                ..Self::default()
            };
        }
    }

    pub(super) fn record_period(&mut self, period_ms: f64) {
        if period_ms.is_finite() && period_ms > 0.0 {
            push_bounded(&mut self.periods_ms, period_ms, MAX_BLOCKS);
        }
    }

    /// Returns the block's host gap per iteration, milliseconds; `None` if the process synchronizes
    /// too rarely.
    ///
    /// The mean gap times the gaps per iteration of the last blocks: in a single short block, one
    /// synchronization more or less would look like lateness.
    #[expect(
        clippy::cast_precision_loss,
        reason = "samples of one block stay below 2^53"
    )]
    pub(super) fn gap_ms(&mut self, gaps: &Summary, iterations: f64, min_rate: f64) -> Option<f64> {
        let count = gaps.count as f64;
        push_bounded(&mut self.counts, (count, iterations), RATE_BLOCKS);
        let sum = |(n, m): (f64, f64), block: &(f64, f64)| (n + block.0, m + block.1);
        let (n_gaps, n_iterations) = self.counts.iter().fold((0.0, 0.0), sum);
        let rate = n_gaps / n_iterations;
        let gap_ms = gaps.sum_ms / count * rate;
        (rate >= min_rate && gap_ms.is_finite()).then_some(gap_ms)
    }

    pub(super) fn record_healthy(&mut self, gap_ms: f64) {
        push_bounded(&mut self.gaps_ms, gap_ms, MAX_BLOCKS);
    }

    pub(super) fn period_ms(&self) -> Option<f64> {
        median(self.periods_ms.iter().copied())
    }

    pub(super) fn reference(&self, gates: Gates) -> Option<Reference> {
        if self.gaps_ms.len() < MIN_BLOCKS {
            return None;
        }
        let center_ms = median(self.gaps_ms.iter().copied())?;
        let deviations = self.gaps_ms.iter().map(|gap_ms| (gap_ms - center_ms).abs());
        Some(Reference {
            center_ms,
            sigma_ms: MAD_TO_SIGMA * median(deviations)?,
            period_ms: self.period_ms()?,
            gates,
        })
    }
}

fn push_bounded<T>(values: &mut VecDeque<T>, value: T, max: usize) {
    values.push_back(value);
    if values.len() > max {
        values.pop_front();
    }
}
