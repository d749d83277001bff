//! Multiple testing: p-values and the thresholds for many tests at once.
//!
//! Sources: Šidák (1967); Benjamini & Hochberg (1995).

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Lowest critical z: the usual threshold of the modified z-score (Iglewicz & Hoaglin 1993).
const LOWEST_Z: f64 = 3.5;

/// Share of the information about a normal scale that the median absolute deviation keeps
/// (Rousseeuw & Croux 1993).
const MAD_EFFICIENCY: f64 = 0.37;

/// Degrees of freedom above which Student's distribution is close enough to the normal one.
const AS_GOOD_AS_NORMAL: f64 = 1e4;

/// Precision of the scale of a z-score. With a scale estimated from few values, the score has
/// heavier tails than a normal one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tail {
    freedom: f64,
}

impl Tail {
    /// The scale is known.
    pub const NORMAL: Self = Self {
        freedom: f64::INFINITY,
    };

    /// The scale is the median absolute deviation of `n` values.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the number of values is far below 2^53"
    )]
    pub fn from_mad(n: usize) -> Self {
        Self {
            freedom: (MAD_EFFICIENCY * n.saturating_sub(1) as f64).max(1.0),
        }
    }

    fn student(self) -> Option<StudentsT> {
        if self.freedom > AS_GOOD_AS_NORMAL {
            return None;
        }
        StudentsT::new(0.0, 1.0, self.freedom).ok()
    }

    /// Probability of at least `z`; 1 when `z` is not a number.
    pub fn above(self, z: f64) -> f64 {
        match self.student() {
            Some(student) if z.is_finite() => student.sf(z),
            _ => upper_tail(z),
        }
    }

    /// The score that none of `n_tests` independent scores exceeds with probability `1 - alpha`
    /// (Šidák); never below 3.5.
    pub fn critical(self, n_tests: usize, alpha: f64) -> f64 {
        let normal = critical_z(n_tests, alpha);
        let quantile = self
            .student()
            .map(|student| student.inverse_cdf(1.0 - single_alpha(n_tests, alpha)));
        quantile
            .filter(|z| z.is_finite())
            .map_or(normal, |z| z.max(normal))
    }
}

/// One-sided z that none of `n_tests` independent normal values exceeds with probability `1 -
/// alpha` (Šidák); never below 3.5.
pub fn critical_z(n_tests: usize, alpha: f64) -> f64 {
    let quantile = Normal::standard().inverse_cdf(1.0 - single_alpha(n_tests, alpha));
    if quantile.is_finite() {
        quantile.max(LOWEST_Z)
    } else {
        LOWEST_Z
    }
}

/// Error of one test for which `n_tests` independent tests have the common error `alpha`.
#[expect(
    clippy::cast_precision_loss,
    reason = "the number of ranks is far below 2^53"
)]
fn single_alpha(n_tests: usize, alpha: f64) -> f64 {
    1.0 - (1.0 - alpha).powf(1.0 / n_tests.max(1) as f64)
}

/// Probability that a standard normal value is at least `z`; 1 when `z` is not a number.
pub fn upper_tail(z: f64) -> f64 {
    if z.is_nan() {
        return 1.0;
    }
    Normal::standard().sf(z)
}

/// Largest significant p-value at a false discovery rate of `q` over all of them; `None` if none is
/// significant. NaN counts as 1. Valid for tests that are independent or positively dependent.
#[expect(
    clippy::cast_precision_loss,
    reason = "the number of ranks is far below 2^53"
)]
pub fn discovery_threshold(p_values: &[f64], q: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = p_values
        .iter()
        .map(|p| if p.is_nan() { 1.0 } else { *p })
        .collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let significant = sorted
        .iter()
        .enumerate()
        .rev()
        .find(|(index, p)| **p <= q * (*index as f64 + 1.0) / n);
    significant.map(|(_, p)| *p)
}

#[cfg(test)]
mod tests {
    use super::{Tail, critical_z, discovery_threshold, upper_tail};
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    #[test]
    fn more_ranks_need_a_larger_z() {
        // The specification's table for a family error of 1e-3.
        for (ranks, expected) in [(8, 3.66), (64, 4.16), (1_024, 4.76), (10_240, 5.20)] {
            assert!((critical_z(ranks, 1e-3) - expected).abs() < 0.01, "{ranks}");
        }
        assert!((critical_z(1, 1e-3) - 3.5).abs() < 1e-12);
    }

    #[test]
    fn in_the_example_of_benjamini_and_hochberg_the_first_four_are_significant() {
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        assert_eq!(discovery_threshold(&p, 0.05), Some(0.0095));
    }

    #[test]
    fn a_scale_from_few_values_needs_a_larger_z() {
        let known = Tail::NORMAL.critical(8, 1e-3);
        assert!((known - critical_z(8, 1e-3)).abs() < 1e-12);
        let criticals = [8, 64, 1_024].map(|n| Tail::from_mad(n).critical(8, 1e-3));
        assert!(
            criticals.windows(2).all(|pair| pair[0] > pair[1]),
            "{criticals:?}"
        );
        assert!(
            criticals[0] > 8.0 && criticals[2] < known + 0.1,
            "{criticals:?}"
        );
        assert!(Tail::from_mad(8).above(4.0) > upper_tail(4.0));
        assert!((Tail::from_mad(8).above(f64::NAN) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn no_values_and_nan_are_not_significant() {
        assert_eq!(discovery_threshold(&[], 0.01), None);
        assert_eq!(discovery_threshold(&[f64::NAN], 0.01), None);
        assert!((upper_tail(f64::NAN) - 1.0).abs() < f64::EPSILON);
        assert!(upper_tail(f64::INFINITY).abs() < f64::EPSILON);
    }

    proptest! {
        #[test]
        fn the_order_of_the_tests_does_not_matter(mut p in proptest::collection::vec(0.0..1.0_f64, 1..40)) {
            let before = discovery_threshold(&p, 0.1);
            p.reverse();
            prop_assert_eq!(before, discovery_threshold(&p, 0.1));
        }

        #[test]
        fn a_stricter_rate_finds_no_more(p in proptest::collection::vec(0.0..0.2_f64, 1..40)) {
            let strict = discovery_threshold(&p, 0.01).unwrap_or(0.0);
            let lax = discovery_threshold(&p, 0.05).unwrap_or(0.0);
            prop_assert!(strict <= lax);
        }
    }
}
