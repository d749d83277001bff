//! Statistics of rank order. They hold for any distribution and any number of ranks from two.
//!
//! Sources: Friedman (1937) for mean ranks, here one-sided and per rank; the binomial distribution
//! for the number of last places.

use std::collections::BTreeMap;

use statrs::distribution::{Binomial, DiscreteCDF};

/// Places (1 = first) of the values. Ties share the mean of their places.
#[expect(
    clippy::cast_precision_loss,
    reason = "the number of ranks is far below 2^53"
)]
pub fn places(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut places = vec![0.0; values.len()];
    let mut first = 0;
    for tied in order.chunk_by(|a, b| a.1.total_cmp(&b.1).is_eq()) {
        let shared = first as f64 + f64::midpoint(tied.len() as f64, 1.0);
        for (index, _) in tied {
            if let Some(place) = places.get_mut(*index) {
                *place = shared;
            }
        }
        first += tied.len();
    }
    places
}

/// Distance of the mean place of one of `n` ranks over `rounds` independent rounds from the middle,
/// in standard deviations: `(mean - (n+1)/2) / sqrt((n^2-1) / (12 rounds))`. `None` for fewer than
/// two ranks or no round.
#[expect(
    clippy::cast_precision_loss,
    reason = "the number of ranks is far below 2^53"
)]
pub fn place_z(mean_place: f64, n: usize, rounds: f64) -> Option<f64> {
    if n < 2 || rounds <= 0.0 {
        return None;
    }
    let n = n as f64;
    let spread = (n.mul_add(n, -1.0) / (12.0 * rounds)).sqrt();
    Some((mean_place - f64::midpoint(n, 1.0)) / spread)
}

/// Probability that one of `n` equal ranks is last in at least `last` of `rounds` rounds.
#[expect(
    clippy::cast_precision_loss,
    reason = "the number of ranks is far below 2^53"
)]
pub fn last_probability(last: u64, rounds: u64, n: usize) -> f64 {
    if last == 0 || n < 2 {
        return 1.0;
    }
    let one_in_n = 1.0 / n as f64;
    Binomial::new(one_in_n, rounds).map_or(1.0, |binomial| binomial.sf(last - 1))
}

/// Evenness of the last place: entropy of the last rank, `-sum p ln p`, divided by its largest
/// value `ln min(n, rounds)`. 0 if it is always the same rank, 1 if all ranks are last equally
/// often. `None` below two ranks or rounds.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one window stay far below 2^53"
)]
pub fn last_rank_entropy<T: Ord>(last: impl IntoIterator<Item = T>, n: usize) -> Option<f64> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for one in last {
        *counts.entry(one).or_default() += 1;
    }
    let rounds: usize = counts.values().sum();
    let most = n.min(rounds);
    if most < 2 {
        return None;
    }
    let share = |count: &usize| *count as f64 / rounds as f64;
    let entropy: f64 = counts.values().map(share).map(|p| -p * p.ln()).sum();
    Some(entropy / (most as f64).ln())
}

#[cfg(test)]
mod tests {
    use super::{last_probability, last_rank_entropy, place_z, places};
    use proptest::prelude::{prop_assert, proptest};

    #[test]
    fn ties_share_their_places() {
        assert_eq!(places(&[5.0, 1.0, 5.0, 0.0]), [3.5, 2.0, 3.5, 1.0]);
        assert!(places(&[]).is_empty());
    }

    #[test]
    fn always_last_of_two_needs_fourteen_rounds_for_one_in_ten_thousand() {
        // The specification's table: n = 2 14, 3 9, 4 7, 8 5.
        for (n, rounds) in [(2, 14), (3, 9), (4, 7), (8, 5)] {
            assert!(last_probability(rounds, rounds, n) < 1e-4, "{n}");
            assert!(last_probability(rounds - 1, rounds - 1, n) > 1e-4, "{n}");
        }
    }

    #[test]
    fn a_share_of_last_places_is_significant_after_more_rounds() {
        // The specification's table for 32 rounds: 27 (n = 2), 19 (n = 4), 13 (n = 8).
        for (n, last) in [(2, 27), (4, 19), (8, 13)] {
            assert!(last_probability(last, 32, n) < 1e-4, "{n}");
        }
    }

    #[test]
    fn the_mean_place_is_weighted_by_the_number_of_rounds() {
        assert!((place_z(2.0, 2, 16.0).unwrap() - 4.0).abs() < 1e-9);
        assert!((place_z(2.5, 4, 8.0).unwrap()).abs() < 1e-9);
        assert_eq!(place_z(1.0, 1, 8.0), None);
        assert_eq!(place_z(1.0, 4, 0.0), None);
    }

    #[test]
    fn entropy_distinguishes_a_stable_culprit_from_alternating_ranks() {
        assert!(last_rank_entropy([3; 20], 4).unwrap().abs() < 1e-9);
        let turns = (0..20).map(|round| round % 4);
        assert!((last_rank_entropy(turns, 4).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(last_rank_entropy([1], 4), None);
    }

    proptest! {
        #[test]
        fn places_add_up_and_do_not_depend_on_scale(values in proptest::collection::vec(-1e6..1e6_f64, 1..30)) {
            let n = f64::from(u32::try_from(values.len()).unwrap());
            let first = places(&values);
            let total: f64 = first.iter().sum();
            prop_assert!((total - n * (n + 1.0) / 2.0).abs() < 1e-6);
            let scaled: Vec<f64> = values.iter().map(|value| value * 2.0).collect();
            prop_assert!(first == places(&scaled));
        }
    }
}
