//! Threshold for health scores.

use echo_core::stats::{mad, median};

/// Factor from the median absolute deviation to the standard deviation of a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;

/// Minimum median absolute deviation, in scores.
const MIN_MAD: f64 = 0.01;

/// Arrival time after which a new threshold has the configured weight, milliseconds.
const STEP_MS: f64 = 5_000.0;

/// Returns the threshold of these scores alone: median minus `k` robust standard deviations. `None`
/// for no scores. Scores below `current` are left out while at least half of the scores remain,
/// because they would pull the threshold down.
pub(super) fn fresh(scores: &[f64], current: Option<f64>, k: f64) -> Option<f64> {
    let is_good = |score: &f64| current.is_none_or(|current| *score >= current);
    let good: Vec<f64> = scores.iter().copied().filter(is_good).collect();
    let peers = if 2 * good.len() >= scores.len() {
        &good
    } else {
        scores
    };
    let deviation = mad(peers)?.max(MIN_MAD);
    Some((-k * MAD_TO_SIGMA).mul_add(deviation, median(peers)?))
}

/// Returns the threshold `elapsed_ms` after it was `before`: an exponential moving average towards
/// `fresh` whose weight does not depend on how often it is computed.
pub(super) fn smoothed(before: Option<f64>, fresh: f64, alpha: f64, elapsed_ms: f64) -> f64 {
    let Some(before) = before else {
        return fresh;
    };
    let weight = 1.0 - (1.0 - alpha).powf(elapsed_ms.max(0.0) / STEP_MS);
    weight.mul_add(fresh - before, before)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop_assert, proptest};

    use super::{MAD_TO_SIGMA, MIN_MAD, fresh, smoothed};

    const K: f64 = 3.5;

    fn scores() -> impl Strategy<Value = Vec<f64>> {
        proptest::collection::vec(0.0..1.0_f64, 3..40)
    }

    fn spread() -> impl Strategy<Value = Vec<f64>> {
        let wide = |scores: &Vec<f64>| echo_core::stats::mad(scores).unwrap() > 2.0 * MIN_MAD;
        scores().prop_filter("the deviation is above its floor", wide)
    }

    #[test]
    fn the_threshold_lies_k_robust_deviations_below_the_median() {
        let threshold = fresh(&[0.7, 0.8, 0.9, 1.0, 0.6], None, 2.0).unwrap();
        assert!((threshold - (2.0 * MAD_TO_SIGMA).mul_add(-0.1, 0.8)).abs() < 1e-12);
        assert_eq!(fresh(&[], None, 2.0), None);
    }

    #[test]
    fn equal_scores_have_a_tolerance_for_rounding() {
        let threshold = fresh(&[0.9; 8], None, K).unwrap();
        assert!((threshold - (K * MAD_TO_SIGMA).mul_add(-MIN_MAD, 0.9)).abs() < 1e-12);
    }

    #[test]
    fn scores_below_the_threshold_do_not_pull_it_down() {
        let scores = [0.9, 0.92, 0.88, 0.91, 0.2, 0.3];
        let alone = fresh(&scores[..4], None, K);
        assert_eq!(fresh(&scores, Some(0.8), K), alone);
        assert!(fresh(&scores, None, K) < alone);
    }

    #[test]
    fn all_scores_count_when_more_than_half_are_below() {
        let scores = [0.9, 0.4, 0.5, 0.45];
        assert_eq!(fresh(&scores, Some(0.8), K), fresh(&scores, None, K));
    }

    #[test]
    fn the_weight_per_five_seconds_does_not_depend_on_the_number_of_updates() {
        let once = smoothed(Some(0.5), 1.0, 0.2, 5_000.0);
        assert!((once - 0.6).abs() < 1e-12);
        let mut often = Some(0.5);
        for _ in 0..50 {
            often = Some(smoothed(often, 1.0, 0.2, 100.0));
        }
        assert!((often.unwrap() - once).abs() < 1e-9);
        let is = |average: f64, expected: f64| (average - expected).abs() < 1e-12;
        assert!(is(smoothed(None, 0.7, 0.2, 0.0), 0.7));
        assert!(is(smoothed(Some(0.5), 1.0, 0.2, 0.0), 0.5));
        assert!(is(smoothed(Some(0.5), 0.9, 1.0, 1.0), 0.9));
    }

    proptest! {
        #[test]
        fn the_order_of_the_nodes_does_not_matter(scores in scores(), at in 0..40_usize) {
            let mut turned = scores.clone();
            turned.rotate_left(at % scores.len());
            turned.reverse();
            prop_assert!(fresh(&scores, Some(0.4), K) == fresh(&turned, Some(0.4), K));
        }

        #[test]
        fn the_threshold_moves_with_the_scores(scores in scores(), shift in -0.5..0.5_f64) {
            let moved: Vec<f64> = scores.iter().map(|score| score + shift).collect();
            let (before, after) = (fresh(&scores, None, K).unwrap(), fresh(&moved, None, K).unwrap());
            prop_assert!((before + shift - after).abs() < 1e-9);
        }

        #[test]
        fn the_threshold_scales_with_the_scores(scores in spread(), scale in 0.5..2.0_f64) {
            let scaled: Vec<f64> = scores.iter().map(|score| score * scale).collect();
            let (before, after) = (fresh(&scores, None, K).unwrap(), fresh(&scaled, None, K).unwrap());
            prop_assert!((before.mul_add(scale, -after)).abs() < 1e-9);
        }

        #[test]
        fn a_minority_of_bad_nodes_never_moves_the_threshold_past_the_good_ones(
            good in proptest::collection::vec(0.6..1.0_f64, 3..20),
            bad in 0.0..1.0_f64,
        ) {
            let mut all = good.clone();
            all.extend(std::iter::repeat_n(bad, (good.len() - 1) / 2));
            let largest = good.iter().copied().fold(f64::MIN, f64::max);
            let least = good.iter().copied().fold(f64::MAX, f64::min);
            let reach = K * MAD_TO_SIGMA * (largest - least).max(MIN_MAD);
            let threshold = fresh(&all, None, K).unwrap();
            prop_assert!(threshold < largest);
            prop_assert!(threshold >= least - reach - 1e-9);
        }

        #[test]
        fn the_average_stays_between_old_and_new_threshold(
            (before, fresh) in (0.0..1.0_f64, 0.0..1.0_f64),
            (alpha, elapsed_ms) in (0.01..=1.0_f64, 0.0..1e9_f64),
        ) {
            let after = smoothed(Some(before), fresh, alpha, elapsed_ms);
            prop_assert!(after >= before.min(fresh) - 1e-12);
            prop_assert!(after <= before.max(fresh) + 1e-12);
        }
    }
}
