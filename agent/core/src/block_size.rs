//! How many operations make a block.
//!
//! A block is 2^k operations and starts at a multiple of 2^k, so that the ends of large blocks are ends of small ones, too: ranks
//! that choose different sizes still have the ends of the larger ones in common, and the collector puts the smaller ones together.
//! A block that lasts much longer than intended ends early, at a multiple of a smaller power of two, so that a slowdown is
//! reported in time.
//!
//! The operator's own choice overrides what is measured.

/// How blocks are cut.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BlockRule {
    /// How long a block should last, nanoseconds.
    pub target_ns: f64,
    /// The operator's own choice as an exponent of two.
    pub exponent: Option<u32>,
}

/// Ranks up to which blocks are short whatever is asked for, and how long they last at most, nanoseconds. Few ranks are compared over
/// time, since there are few to compare; and what they send is little.
const SMALL_JOB_RANKS: u32 = 16;
const SMALL_JOB_MAX_NS: f64 = 2e9;

impl BlockRule {
    /// The rule for a job of so many ranks.
    pub(crate) fn for_world_size(self, world_size: u32) -> Self {
        let target_ns = if world_size <= SMALL_JOB_RANKS {
            self.target_ns.min(SMALL_JOB_MAX_NS)
        } else {
            self.target_ns
        };
        Self { target_ns, ..self }
    }

    /// How long a block may last before it ends early, nanoseconds.
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

/// Largest block, as an exponent of two.
pub const MAX_EXPONENT: u32 = 20;

/// Operations that a duration is taken over at least: of an iteration of few, several.
const MIN_OPERATIONS: usize = 16;

/// Durations that must have been measured before a size is chosen.
const MIN_DURATIONS: usize = 3;

/// Duration of one iteration of `period` operations, nanoseconds: the median over those that began at these instants.
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

/// A block may last this many times as long as intended.
pub const MAX_STRETCH: f64 = 1.2;

/// The exponent of the largest block of operations, one each `interval_ns`, that does not last much longer than `target_ns`.
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

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get(values.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
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
    fn fewer_than_three_iterations_decide_nothing() {
        assert_eq!(iteration_ns(&[100, 200, 300], 16), None);
        assert_eq!(iteration_ns(&[100, 200, 300, 400], 16), Some(100.0));
    }

    #[test]
    fn one_slow_iteration_does_not_move_the_choice() {
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
