//! Attribution of a delay to the ranks that cause it together.
//!
//! If several ranks are late at the same time, their cohort waits only for the latest, so together
//! they cost its lag. This is the airport game: each airplane needs the runway up to its own
//! length. The Shapley value of the game divides the cost so that the parts add up to the total (S.
//! C. Littlechild, G. Owen: A simple expression for the Shapley value in a special case, Management
//! Science 20, 1973); ranks that are not late share nothing.

/// Parts of the delay that are attributed to one lag.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Part of the delay, 0 to 1; the parts of all add up to 1.
    pub caused: f64,
    /// Part of the delay that fixing only this rank would have saved, 0 to 1: its difference to the
    /// next lag.
    pub saved: f64,
}

/// Returns the shares of the ranks with these lags (all in the same unit, in any order). If no rank
/// is late, the shares are equal.
pub fn shares(lags: &[f64]) -> Vec<Share> {
    let lags: Vec<f64> = lags.iter().map(|lag| lag.max(0.0)).collect();
    let latest = lags.iter().copied().fold(0.0, f64::max);
    if latest <= 0.0 || !latest.is_finite() {
        let even = 1.0 / count(lags.len());
        let saved = if lags.len() == 1 { 1.0 } else { 0.0 };
        let share = Share {
            caused: even,
            saved,
        };
        return vec![share; lags.len()];
    }
    let mut order: Vec<usize> = (0..lags.len()).collect();
    let lag_of = |index: &usize| lags.get(*index).copied().unwrap_or(0.0);
    order.sort_by(|a, b| lag_of(a).total_cmp(&lag_of(b)));
    let mut shares = vec![
        Share {
            caused: 0.0,
            saved: 0.0,
        };
        lags.len()
    ];
    let (mut before, mut caused) = (0.0, 0.0);
    for (place, index) in order.iter().enumerate() {
        let lag = lag_of(index);
        // Every rank that is at least as late shares this part of the delay.
        caused += (lag - before) / count(order.len() - place);
        if let Some(share) = shares.get_mut(*index) {
            share.caused = caused / latest;
            let is_latest = place + 1 == order.len();
            share.saved = if is_latest {
                (lag - before) / latest
            } else {
                0.0
            };
        }
        before = lag;
    }
    shares
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the number of ranks is far below 2^53"
)]
const fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, proptest};

    use super::shares;

    fn caused(lags: &[f64]) -> Vec<f64> {
        shares(lags).iter().map(|share| share.caused).collect()
    }

    fn saved(lags: &[f64]) -> Vec<f64> {
        shares(lags).iter().map(|share| share.saved).collect()
    }

    #[test]
    fn a_single_culprit_has_caused_all_and_saves_all() {
        assert_eq!((caused(&[80.0]), saved(&[80.0])), (vec![1.0], vec![1.0]));
    }

    #[test]
    fn two_that_are_equally_late_share_alike_and_neither_saves_anything_alone() {
        assert_eq!(caused(&[8.0, 8.0]), [0.5, 0.5]);
        assert_eq!(saved(&[8.0, 8.0]), [0.0, 0.0]);
    }

    #[test]
    fn the_later_one_bears_alone_what_it_is_later() {
        // Both share 4 ms, and one alone causes 4 ms more.
        assert_eq!(caused(&[8.0, 4.0]), [0.75, 0.25]);
        assert_eq!(saved(&[8.0, 4.0]), [0.5, 0.0]);
    }

    #[test]
    fn a_rank_that_is_not_late_has_no_share() {
        assert_eq!(caused(&[0.0, 5.0, -3.0]), [0.0, 1.0, 0.0]);
    }

    #[test]
    fn without_late_ranks_the_shares_are_equal() {
        assert_eq!(caused(&[0.0, 0.0]), [0.5, 0.5]);
        assert_eq!(saved(&[0.0]), [1.0]);
    }

    proptest! {
        #[test]
        fn parts_add_up_and_no_rank_saves_more_than_its_part(
            lags in prop::collection::vec(0.0..1e6_f64, 1..40),
        ) {
            let shares = shares(&lags);
            let total: f64 = shares.iter().map(|share| share.caused).sum();
            prop_assert!((total - 1.0).abs() < 1e-9, "{total}");
            for share in shares {
                prop_assert!(share.saved <= share.caused + 1e-9, "{share:?}");
            }
        }

        #[test]
        fn a_later_rank_has_a_larger_share(lags in prop::collection::vec(0.0..1e6_f64, 2..20)) {
            let mut pairs: Vec<(f64, f64)> = lags.iter().copied().zip(caused(&lags)).collect();
            pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
            prop_assert!(pairs.is_sorted_by(|a, b| a.1 <= b.1 + 1e-12));
        }
    }
}
