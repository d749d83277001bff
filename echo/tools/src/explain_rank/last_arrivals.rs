//! Count of blocks in which a rank was last, which is easier to understand than a z-score.

use echo_analysis::lag::Lags;
use echo_core::ids::Rank;
use echo_core::stats::order::last_probability;
use schemars::JsonSchema;
use serde::Serialize;

/// Probability below which the count is not explained by chance.
const MAX_CHANCE: f64 = 1e-4;

/// Count of blocks of a series in which a rank was later than all others.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LastArrivals {
    /// Number of blocks in which it was later than every peer.
    pub last: u64,
    /// Number of blocks in which it was compared.
    pub of: u64,
    /// Minimum number of ranks compared in a block.
    pub ranks: u64,
    /// Probability that one of as many equal ranks is last at least as often, assuming independent
    /// blocks.
    pub probability: f64,
}

impl LastArrivals {
    /// Counts over blocks; `None` when the rank could not be compared in any.
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

    /// Sentence about the count; `None` when chance may explain it.
    pub(super) fn sentence(&self) -> Option<String> {
        (self.probability < MAX_CHANCE).then(|| {
            format!(
                "It was last in {} of {} blocks (p < {MAX_CHANCE} by chance among {} equal ranks).",
                self.last, self.of, self.ranks
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::LastArrivals;

    #[test]
    fn the_sentence_is_omitted_when_chance_may_explain_the_count() {
        let last_in = |last| LastArrivals {
            last,
            of: 32,
            ranks: 2,
            probability: echo_core::stats::order::last_probability(last, 32, 2),
        };
        assert_eq!(
            last_in(27).sentence().unwrap(),
            "It was last in 27 of 32 blocks (p < 0.0001 by chance among 2 equal ranks)."
        );
        assert_eq!(last_in(26).sentence(), None);
    }
}
