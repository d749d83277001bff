//! Series by which peers are compared: the waiting that each rank causes.
//!
//! This is the contract of `find_outlier_nodes` and of the policies that agents receive. It shows
//! where waiting comes from; a verdict also needs a loss.

use echo_core::stats::{median, robust_sigma};

use crate::straggler::incident::RankOfJob;

/// Smallest modified z-score of an outlier (Iglewicz and Hoaglin 1993).
const CRITICAL_Z: f64 = 3.5;

/// Smallest distance from the center that counts, milliseconds per second: 2 % of the time, the
/// smallest loss that is reported.
const LEAST_MS_PER_S: f64 = 20.0;

/// One rank among its peers. All values are milliseconds per second and peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeerWaiting {
    /// Rank.
    pub rank: RankOfJob,
    /// Time that each peer waited for it in the last evaluation.
    pub caused: f64,
    /// Median of the same in its own healthy past; `None` without a past.
    pub usual: Option<f64>,
    /// Distance from the center of its peers in units of their sigma.
    pub z: Option<f64>,
    /// True if it exceeds the limit.
    pub is_outlier: bool,
}

/// Ranks of one job, compared. All values are milliseconds per second and peer.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerComparison {
    /// Median of the ranks.
    pub center: f64,
    /// Robust standard deviation (MAD, finite-sample factor); `None` below three ranks.
    pub sigma: Option<f64>,
    /// A rank above it is an outlier: `center + max(3.5 sigma, 20 ms/s)`, or for two ranks its own
    /// usual value plus 20 ms/s.
    pub limit: f64,
    /// By rank.
    pub ranks: Vec<PeerWaiting>,
}

/// Compares the ranks of a job; `None` without ranks. `caused` and `usual` are shares of the time.
pub(super) fn compare(ranks: &[(RankOfJob, f64, Option<f64>)]) -> Option<PeerComparison> {
    let values: Vec<f64> = ranks.iter().map(|(_, caused, _)| 1e3 * caused).collect();
    let center = median(&values)?;
    let sigma = robust_sigma(&values);
    let margin = (CRITICAL_Z * sigma.unwrap_or(0.0)).max(LEAST_MS_PER_S);
    let limit = center + margin;
    let compared = ranks.iter().map(|(rank, caused, usual)| {
        let caused = 1e3 * caused;
        let usual = usual.map(|usual| 1e3 * usual);
        let own = usual.map_or(limit, |usual| usual + LEAST_MS_PER_S);
        PeerWaiting {
            rank: *rank,
            caused,
            usual,
            z: sigma.map(|sigma| (caused - center) / sigma.max(LEAST_MS_PER_S / CRITICAL_Z)),
            is_outlier: caused > limit && caused > own,
        }
    });
    Some(PeerComparison {
        center,
        sigma,
        limit,
        ranks: compared.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::compare;
    use crate::straggler::block::{NodeKey, ProcessKey};
    use crate::straggler::incident::RankOfJob;

    fn ranks(caused: &[f64], usual: f64) -> Vec<(RankOfJob, f64, Option<f64>)> {
        let rank = |(rank, caused): (usize, &f64)| {
            let identity = RankOfJob {
                rank: u32::try_from(rank).ok(),
                process: ProcessKey(rank as u64),
                node: NodeKey(0),
            };
            (identity, *caused, Some(usual))
        };
        caused.iter().enumerate().map(rank).collect()
    }

    #[test]
    fn a_rank_far_above_its_peers_and_its_own_past_is_an_outlier() {
        let compared = compare(&ranks(&[0.01, 0.012, 0.5, 0.009], 0.01)).expect("ranks");
        let outliers = compared.ranks.iter().filter(|rank| rank.is_outlier);
        assert_eq!(
            outliers.map(|rank| rank.rank.rank).collect::<Vec<_>>(),
            [Some(2)]
        );
        assert!((compared.center - 11.0).abs() < 1e-9);
    }

    #[test]
    fn a_rank_that_always_was_there_is_none() {
        let compared = compare(&ranks(&[0.01, 0.012, 0.5, 0.009], 0.6)).expect("ranks");
        assert!(compared.ranks.iter().all(|rank| !rank.is_outlier));
    }

    #[test]
    fn without_ranks_there_is_nothing_to_compare() {
        assert_eq!(compare(&[]), None);
    }
}
