//! Statistics of series.

use crate::stats::mean;

/// Correlation of each value with the one before it, pooled over several series around their own
/// means; 0 when they do not vary.
pub fn lag_one_correlation(series: &[&[f64]]) -> f64 {
    let (mut together, mut alone) = (0.0, 0.0);
    for values in series {
        let center = mean(values).unwrap_or(0.0);
        let off: Vec<f64> = values.iter().map(|value| value - center).collect();
        together += off
            .windows(2)
            .map(|pair| pair.iter().product::<f64>())
            .sum::<f64>();
        alone += off.iter().map(|value| value * value).sum::<f64>();
    }
    if alone > 0.0 { together / alone } else { 0.0 }
}

/// Effective number of independent values among `n` values with a correlation of `rho` between
/// neighbours: `n (1 - rho) / (1 + rho)`, at least 2 and at most `n`.
pub fn effective_size(n: f64, rho: f64) -> f64 {
    let rho = rho.clamp(0.0, 0.99);
    (n * (1.0 - rho) / (1.0 + rho)).max(2.0).min(n)
}

/// Lasting change in the level of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// Index of the first value after the change.
    pub at: usize,
    /// Mean before it.
    pub before: f64,
    /// Mean after it.
    pub after: f64,
}

/// The split that explains most of the variation, with at least `least` values on either side;
/// `None` for shorter series. Maximises `n1 n2 / n (mean1 - mean2)^2`, the between-group sum of
/// squares.
///
/// The caller decides if the change matters; Greyhound (ATC'25) verifies that the means differ
/// by 10 %.
#[expect(
    clippy::cast_precision_loss,
    reason = "series of one window stay far below 2^53"
)]
pub fn change_point(values: &[f64], least: usize) -> Option<ChangePoint> {
    let least = least.max(1);
    let last = values.len().checked_sub(least)?;
    let total: f64 = values.iter().sum();
    let mut sum = 0.0;
    let mut best: Option<(f64, ChangePoint)> = None;
    for (index, value) in values.iter().enumerate() {
        if (least..=last).contains(&index) {
            let (n_before, n_after) = (index as f64, (values.len() - index) as f64);
            let (before, after) = (sum / n_before, (total - sum) / n_after);
            let explained = n_before * n_after * (after - before).powi(2);
            if best.is_none_or(|(most, _)| explained > most) {
                let found = ChangePoint {
                    at: index,
                    before,
                    after,
                };
                best = Some((explained, found));
            }
        }
        sum += value;
    }
    best.map(|(_, found)| found)
}

#[cfg(test)]
mod tests {
    use super::{change_point, effective_size, lag_one_correlation};
    use proptest::prelude::{prop_assert, proptest};

    #[test]
    fn alternating_values_are_anticorrelated_and_do_not_count_more_than_once() {
        let values = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0];
        assert!(lag_one_correlation(&[values.as_slice()]) < -0.5);
        assert!((effective_size(16.0, -0.8) - 16.0).abs() < 1e-9);
        assert!((effective_size(16.0, 0.8) - 2.0).abs() < 1e-9);
        assert!((effective_size(90.0, 0.8) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn constant_values_have_no_correlation() {
        assert!(lag_one_correlation(&[[3.0; 8].as_slice()]).abs() < 1e-12);
    }

    #[test]
    fn a_step_is_found_where_it_is() {
        let mut values = vec![45.0; 20];
        values.extend([50.0; 12]);
        let found = change_point(&values, 5).unwrap();
        assert_eq!(found.at, 20);
        assert!((found.before - 45.0).abs() < 1e-9 && (found.after - 50.0).abs() < 1e-9);
        assert_eq!(change_point(&values[..9], 5), None);
    }

    proptest! {
        #[test]
        fn the_split_leaves_enough_on_both_sides(values in proptest::collection::vec(-1e3..1e3_f64, 10..60)) {
            let found = change_point(&values, 5).unwrap();
            prop_assert!(found.at >= 5 && values.len() - found.at >= 5);
            prop_assert!(found.before.is_finite() && found.after.is_finite());
        }
    }
}
