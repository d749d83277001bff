//! Robust statistics over slices of finite numbers.
//!
//! Sources: the modified z-score is Iglewicz & Hoaglin, "How to Detect and Handle Outliers" (1993);
//! the finite-sample factors of the median absolute deviation are those of Park, Kim & Wang (2020),
//! confirmed by Akinshin (arXiv 2207.12005); the double median absolute deviation is Rosenmai
//! (2013).

pub mod multiplicity;
pub mod order;
pub mod polish;
pub mod series;

/// Median of the values (mean of the middle two for an even count); `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let mut partial = values.to_vec();
    let middle = partial.len() / 2;
    let is_odd = partial.len() % 2 == 1;
    let (below, upper, _) = partial.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp);
    match lower {
        Some(lower) if !is_odd => Some(f64::midpoint(lower, *upper)),
        _ => Some(*upper),
    }
}

/// Lower median: the middle value, the lower of the middle two for an even count. `None` for no
/// values.
///
/// Lags are measured from it: in a cohort of four with two late ranks, the mean of the middle two
/// lies between the late and the healthy ranks, and no rank would stand out.
pub fn lower_median(values: &[f64]) -> Option<f64> {
    let mut partial = values.to_vec();
    let middle = partial.len().checked_sub(1)? / 2;
    let (_, lower, _) = partial.select_nth_unstable_by(middle, f64::total_cmp);
    Some(*lower)
}

/// Upper median: the middle value, the upper of the middle two for an even count. `None` for no
/// values.
pub fn upper_median(values: &[f64]) -> Option<f64> {
    let mut partial = values.to_vec();
    if partial.is_empty() {
        return None;
    }
    let middle = partial.len() / 2;
    let (_, upper, _) = partial.select_nth_unstable_by(middle, f64::total_cmp);
    Some(*upper)
}

/// Smallest value that at least the share `q` of the values does not exceed; `None` for no values.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "slices are far shorter than 2^53, and the share is limited to 0 to 1"
)]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut partial = values.to_vec();
    let last = partial.len().checked_sub(1)?;
    let place = (q.clamp(0.0, 1.0) * partial.len() as f64).ceil() as usize;
    let (_, value, _) =
        partial.select_nth_unstable_by(place.saturating_sub(1).min(last), f64::total_cmp);
    Some(*value)
}

/// Weighted median of the values: the smallest value at which half of the
/// total weight is reached. `None` when no weight is positive.
pub fn weighted_median(values: &[(f64, f64)]) -> Option<f64> {
    let mut sorted: Vec<(f64, f64)> = values.iter().copied().filter(|(_, w)| *w > 0.0).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = sorted.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut reached = 0.0;
    sorted
        .into_iter()
        .find(|(_, weight)| {
            reached += weight;
            reached >= half
        })
        .map(|(value, _)| value)
}

/// Median absolute deviation from the median, not scaled; `None` for no values.
pub fn mad(values: &[f64]) -> Option<f64> {
    let center = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    median(&deviations)
}

/// Mean of the values; `None` for no values.
#[expect(
    clippy::cast_precision_loss,
    reason = "slices are far shorter than 2^53"
)]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Factor that makes the median absolute deviation of `n` normal values an unbiased estimate of
/// their standard deviation. `None` below three values, where the deviation does not show the
/// scale.
///
/// Between the published sizes the factor is interpolated in `1/n`; it tends to 1.4826.
#[expect(
    clippy::cast_precision_loss,
    reason = "cohorts are far smaller than 2^53"
)]
pub fn mad_factor(n: usize) -> Option<f64> {
    const LIMIT: f64 = 1.4826;
    const FACTORS: [(usize, f64); 9] = [
        (3, 2.212),
        (4, 2.018),
        (5, 1.802),
        (6, 1.764),
        (7, 1.685),
        (8, 1.675),
        (10, 1.622),
        (16, 1.563),
        (32, 1.520),
    ];
    let inverse = |size: usize| 1.0 / size as f64;
    let (mut size_below, mut factor_below) = FACTORS.first().copied()?;
    if n < size_below {
        return None;
    }
    for (size, factor) in FACTORS {
        if n <= size {
            let span = inverse(size_below) - inverse(size);
            let share = if span > 0.0 {
                (inverse(n) - inverse(size)) / span
            } else {
                0.0
            };
            return Some(share.mul_add(factor_below - factor, factor));
        }
        (size_below, factor_below) = (size, factor);
    }
    let share = inverse(n) / inverse(size_below);
    Some(share.mul_add(factor_below - LIMIT, LIMIT))
}

/// Robust standard deviation: the median absolute deviation times [`mad_factor`]. Both medians are
/// lower ones, so that it holds while up to half of the values are outliers. `None` below three
/// values.
pub fn robust_sigma(values: &[f64]) -> Option<f64> {
    let center = lower_median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    Some(lower_median(&deviations)? * mad_factor(values.len())?)
}

/// Minimum number of values for a separate scale of the late side.
const ENOUGH_FOR_SIDES: usize = 16;

/// Ratio of the late side's width to the early side's above which the values count as skewed.
const SKEWED: f64 = 2.0;

/// Robust standard deviation for late values: that of the late side alone if there are enough
/// values and the late side is more than twice as wide as the early one (double MAD), else
/// [`robust_sigma`].
pub fn late_sigma(values: &[f64]) -> Option<f64> {
    let both = robust_sigma(values)?;
    let center = lower_median(values)?;
    let side = |keep: fn(f64) -> bool| {
        let off = values.iter().map(|value| value - center);
        median(
            &off.filter(|off| keep(*off))
                .map(f64::abs)
                .collect::<Vec<f64>>(),
        )
    };
    let (late, early) = (side(|off| off >= 0.0)?, side(|off| off <= 0.0)?);
    if values.len() >= ENOUGH_FOR_SIDES && late > SKEWED * early {
        return Some((late * mad_factor(values.len())?).max(both));
    }
    Some(both)
}

/// Standard error of the mean; `None` below two values.
#[expect(
    clippy::cast_precision_loss,
    reason = "slices are far shorter than 2^53"
)]
pub fn standard_error(values: &[f64]) -> Option<f64> {
    let center = mean(values)?;
    let n = values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    (values.len() >= 2).then(|| (squares / (n - 1.0) / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::{
        late_sigma, lower_median, mad, mad_factor, median, robust_sigma, standard_error,
        weighted_median,
    };
    use proptest::prelude::{prop_assert, proptest};

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_heavy_value_pulls_the_weighted_median() {
        assert_eq!(
            weighted_median(&[(1.0, 1.0), (2.0, 1.0), (9.0, 5.0)]),
            Some(9.0)
        );
        assert_eq!(weighted_median(&[(1.0, 0.0)]), None);
    }

    #[test]
    fn half_of_the_values_may_be_outliers_without_widening_the_scale() {
        assert_eq!(lower_median(&[9.0, 0.0, 8.0, 0.0]), Some(0.0));
        assert_eq!(robust_sigma(&[9.0, 0.0, 8.0, 0.0]), Some(0.0));
    }

    #[test]
    fn a_skewed_late_side_has_a_scale_of_its_own() {
        let skewed: Vec<f64> = (0..32)
            .map(|i| if i < 16 { 0.0 } else { f64::from(i - 15) })
            .collect();
        assert!(late_sigma(&skewed).unwrap() > 2.0 * robust_sigma(&skewed).unwrap());
        let few = &skewed[10..20];
        assert_eq!(late_sigma(few), robust_sigma(few));
    }

    #[test]
    fn two_values_have_no_robust_scale() {
        assert_eq!(robust_sigma(&[1.0, 9.0]), None);
        assert_eq!(standard_error(&[1.0]), None);
    }

    #[test]
    fn the_factor_falls_with_the_size_towards_its_limit() {
        assert_eq!(mad_factor(2), None);
        assert_eq!(mad_factor(4), Some(2.018));
        let sizes = [3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32, 100, 10_000];
        let factors: Vec<f64> = sizes.iter().filter_map(|&n| mad_factor(n)).collect();
        assert_eq!(factors.len(), sizes.len());
        assert!(
            factors.windows(2).all(|pair| pair[0] >= pair[1]),
            "{factors:?}"
        );
        assert!((mad_factor(1_000_000).unwrap() - 1.4826).abs() < 1e-3);
    }

    proptest! {
        #[test]
        fn fewer_than_half_outliers_never_move_the_median_beyond_the_other_values(
            good in proptest::collection::vec(-1e3..1e3_f64, 3..20),
            bad in 1e6..1e9_f64,
        ) {
            let mut all = good.clone();
            all.extend(std::iter::repeat_n(bad, (good.len() - 1) / 2));
            let largest = good.iter().copied().fold(f64::MIN, f64::max);
            prop_assert!(median(&all).unwrap() <= largest);
        }

        #[test]
        fn the_deviation_ignores_shifts_and_follows_scale(
            values in proptest::collection::vec(-1e3..1e3_f64, 1..20),
            shift in -1e3..1e3_f64,
            scale in 0.1..10.0_f64,
        ) {
            let moved: Vec<f64> = values.iter().map(|value| value.mul_add(scale, shift)).collect();
            let (before, after) = (mad(&values).unwrap(), mad(&moved).unwrap());
            prop_assert!((before.mul_add(scale, -after)).abs() < 1e-6);
        }
    }
}
