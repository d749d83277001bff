//! Number of operations per block.
//!
//! A block has 2^k operations and starts at a multiple of 2^k, so that the ends of large blocks are
//! ends of small ones, too: ranks with different block sizes still share the ends of the larger
//! ones, and the collector merges the smaller ones. A block that lasts much longer than intended
//! ends early, at a multiple of a smaller power of two, so that a slowdown is reported in time.
//!
//! A configured size overrides the measured one.

use crate::statistics::median;

/// Rule for block sizes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BlockRule {
    /// Target duration of a block, nanoseconds.
    pub target_ns: f64,
    /// Configured size as a power of two (exponent).
    pub exponent: Option<u32>,
}

/// Size of a small job in ranks, and the maximum duration of its blocks, nanoseconds. Few ranks are
/// compared over time, since there are few to compare, and they send little data.
const SMALL_JOB_RANKS: u32 = 16;
const SMALL_JOB_MAX_NS: f64 = 2e9;

impl BlockRule {
    /// Returns the rule for a job of `world_size` ranks.
    pub(crate) fn for_world_size(self, world_size: u32) -> Self {
        let target_ns = if world_size <= SMALL_JOB_RANKS {
            self.target_ns.min(SMALL_JOB_MAX_NS)
        } else {
            self.target_ns
        };
        Self { target_ns, ..self }
    }

    /// Returns the duration after which a block ends early, nanoseconds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "durations are positive, and the cast saturates"
    )]
    pub(crate) fn max_ns(self) -> u64 {
        match self.exponent {
            Some(_) => u64::MAX,
            None => (self.target_ns * MAX_STRETCH) as u64,
        }
    }
}

/// Maximum block size as an exponent of two.
pub const MAX_EXPONENT: u32 = 20;

/// Minimum number of operations per measured duration: several iterations if each has few.
const MIN_OPERATIONS: usize = 16;

/// Minimum number of durations before a size is chosen.
const MIN_DURATIONS: usize = 3;

/// Returns the duration of one iteration of `period` operations, nanoseconds: the median over
/// iterations that began at the given instants.
#[expect(
    clippy::cast_precision_loss,
    reason = "durations stay far below 2^53 ns"
)]
pub fn iteration_ns(begins: &[u64], period: u64) -> Option<f64> {
    let period = usize::try_from(period).ok()?.max(1);
    let several = MIN_OPERATIONS.div_ceil(period);
    let ends = begins.iter().step_by(several);
    let pairs = ends.clone().zip(ends.skip(1));
    let durations: Vec<f64> = pairs
        .map(|(from, to)| to.saturating_sub(*from) as f64 / several as f64)
        .collect();
    (durations.len() >= MIN_DURATIONS)
        .then(|| median(durations))
        .flatten()
}

/// Maximum duration of a block relative to the target.
pub const MAX_STRETCH: f64 = 1.2;

/// Returns the exponent of the largest block that does not last much longer than `target_ns`, with
/// one operation per `interval_ns`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped before"
)]
pub fn exponent(target_ns: f64, interval_ns: f64) -> u32 {
    if target_ns > 0.0 && interval_ns > 0.0 && interval_ns.is_finite() {
        let exact = (MAX_STRETCH * target_ns / interval_ns).log2();
        exact.floor().clamp(0.0, f64::from(MAX_EXPONENT)) as u32
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_does_not_last_much_longer_than_intended() {
        assert_eq!(exponent(1000.0, 1000.0), 0);
        assert_eq!(exponent(1000.0, 601.0), 0);
        assert_eq!(exponent(1000.0, 600.0), 1);
        assert_eq!(exponent(1000.0, 4.6), 8);
    }

    #[test]
    fn absurd_durations_stay_in_range() {
        assert_eq!(exponent(1.0, 1e12), 0);
        assert_eq!(exponent(1e12, 1e-3), MAX_EXPONENT);
        assert_eq!(exponent(1.0, 0.0), 0);
        assert_eq!(exponent(f64::NAN, f64::NAN), 0);
    }

    #[test]
    fn fewer_than_three_iterations_give_no_duration() {
        assert_eq!(iteration_ns(&[100, 200, 300], 16), None);
        assert_eq!(iteration_ns(&[100, 200, 300, 400], 16), Some(100.0));
    }

    #[test]
    fn one_slow_iteration_does_not_change_the_duration() {
        assert_eq!(
            iteration_ns(&[100, 200, 5_300, 5_400, 5_500], 16),
            Some(100.0)
        );
    }

    #[test]
    fn operations_that_come_in_bursts_are_measured_over_several_bursts() {
        let bursts = (0..40).flat_map(|burst| (0..4).map(move |op| burst * 1000 + op));
        let begins: Vec<u64> = bursts.collect();
        assert_eq!(iteration_ns(&begins, 1), Some(250.0));
    }
}
