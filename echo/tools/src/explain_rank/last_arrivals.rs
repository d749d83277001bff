//! How often a rank was the latest of all, which is easier to grasp than a z-score.

use echo_analysis::lag::Lags;
use echo_core::ids::Rank;
use echo_core::stats::order::last_probability;
use schemars::JsonSchema;
use serde::Serialize;

/// Probability below which it is said that chance does not explain it.
const MAX_CHANCE: f64 = 1e-4;

/// How often a rank was the latest of all in the blocks of a series.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LastArrivals {
    /// Blocks in which it was later than every peer.
    pub last: u64,
    /// Blocks in which it was compared.
    pub of: u64,
    /// Fewest ranks that were compared in one of them.
    pub ranks: u64,
    /// Probability that one of as many equal ranks is last at least as often, were the blocks independent of each other.
    pub probability: f64,
}

impl LastArrivals {
    /// Counts over blocks; nothing when the rank could be compared in none.
    pub(super) fn count(rank: Rank, blocks: &[Option<Lags>]) -> Option<Self> {
        let (mut last, mut of, mut fewest) = (0, 0, usize::MAX);
        for block in blocks.iter().flatten() {
            let Some(own) = block.ranks.iter().find(|lag| lag.rank == rank) else {
                continue;
            };
            let mut peers = block.ranks.iter().filter(|lag| lag.rank != rank);
            of += 1;
            last += u64::from(peers.all(|peer| peer.mean_ms < own.mean_ms));
            fewest = fewest.min(block.ranks.len());
        }
        (of > 0 && fewest >= 2).then(|| Self {
            last,
            of,
            ranks: fewest.try_into().unwrap_or(u64::MAX),
            probability: last_probability(last, of, fewest),
        })
    }

    /// The same in words, where chance does not explain it.
    pub(super) fn sentence(&self) -> Option<String> {
        (self.probability < MAX_CHANCE).then(|| {
            format!(
                "It came last in {} of {} blocks, by chance with p < {MAX_CHANCE} among {} equal ranks.",
                self.last, self.of, self.ranks
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::LastArrivals;

    #[test]
    fn it_is_said_only_where_chance_does_not_explain_it() {
        let of = |last| LastArrivals {
            last,
            of: 32,
            ranks: 2,
            probability: echo_core::stats::order::last_probability(last, 32, 2),
        };
        assert_eq!(
            of(27).sentence().unwrap(),
            "It came last in 27 of 32 blocks, by chance with p < 0.0001 among 2 equal ranks."
        );
        assert_eq!(of(26).sentence(), None);
    }
}
