//! How many operations make a block.
//!
//! Blocks of two ranks can only be compared when both cut at the same sequence numbers, so all
//! ranks of a communicator must choose the same size without talking. Three things make them agree:
//!
//! - A block is 2^k operations and starts at a multiple of 2^k. Only k has to agree, and it is the
//!   rounded logarithm of a duration, so that small differences between clocks rarely matter.
//! - The duration is taken between completions, which all ranks see together, once, at a sequence
//!   number that follows from the pattern, and as a median: a rank that is late itself still
//!   measures the same iterations as its peers.
//! - What remains is a duration that lies within measurement noise of a rounding edge. No rule on
//!   one rank alone can settle that, so the collector may: a policy's block size overrides the
//!   choice from the next block on. Blocks always end before a multiple of their size, so ranks that
//!   switch at different blocks meet again at the next multiple. The operator's own choice
//!   overrides both.

use crate::correlate::Completion;

/// Largest block, as an exponent of two.
pub const MAX_EXPONENT: u32 = 20;

/// Completed iterations that must have been seen before a size is chosen.
const MIN_ITERATIONS: u64 = 3;

/// Duration of one iteration, nanoseconds: the median over the intervals between completions.
#[expect(
    clippy::cast_precision_loss,
    reason = "durations stay far below 2^53 ns"
)]
pub fn iteration_ns(completions: &[Completion], period: u64) -> Option<f64> {
    let (first, last) = (completions.first()?, completions.last()?);
    if last.seq.saturating_sub(first.seq) < MIN_ITERATIONS * period {
        return None;
    }
    let pairs = completions.iter().zip(completions.iter().skip(1));
    let durations = pairs
        .filter(|(from, to)| to.seq > from.seq)
        .map(|(from, to)| {
            let ns = to.return_ns.saturating_sub(from.return_ns) as f64;
            ns * period as f64 / (to.seq - from.seq) as f64
        });
    median(durations.collect())
}

/// The exponent with which a block of operations, one each `interval_ns`, lasts nearest to
/// `target_ns`, in proportion.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped before"
)]
pub fn exponent(target_ns: f64, interval_ns: f64) -> u32 {
    if target_ns > 0.0 && interval_ns > 0.0 && interval_ns.is_finite() {
        let exact = (target_ns / interval_ns).log2();
        exact.round().clamp(0.0, f64::from(MAX_EXPONENT)) as u32
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

    fn completions(every_ns: u64, n: u64) -> Vec<Completion> {
        (1..=n)
            .map(|at| Completion {
                seq: at * 10,
                return_ns: at * every_ns,
            })
            .collect()
    }

    #[test]
    fn a_block_lasts_nearest_to_the_target_in_proportion() {
        assert_eq!(exponent(1000.0, 1000.0), 0);
        assert_eq!(exponent(1000.0, 360.0), 1);
        assert_eq!(exponent(1000.0, 350.0), 2);
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
        assert_eq!(iteration_ns(&completions(100, 3), 10), None);
        assert_eq!(iteration_ns(&completions(100, 4), 10), Some(100.0));
    }

    #[test]
    fn one_slow_iteration_does_not_move_the_choice() {
        let mut seen = completions(100, 9);
        for completion in &mut seen[4..] {
            completion.return_ns += 5000;
        }
        assert_eq!(iteration_ns(&seen, 10), Some(100.0));
    }

    #[test]
    fn a_missed_synchronisation_counts_as_two_iterations() {
        let mut seen = completions(100, 9);
        seen.remove(4);
        assert_eq!(iteration_ns(&seen, 10), Some(100.0));
    }
}
