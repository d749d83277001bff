//! Inputs of a verdict as JSON.

use echo_core::ids::Rank;
use echo_core::model::inputs::{Inputs, RankWaiting};
use serde::{Deserialize, Serialize};

/// Mirrors [`Inputs`], which is independent of the storage format.
#[derive(Debug, Serialize, Deserialize)]
struct KeptInputs {
    center: f64,
    sigma: Option<f64>,
    limit: f64,
    n_ranks: u32,
    ranks: Vec<KeptRank>,
}

/// Mirrors [`RankWaiting`].
#[derive(Debug, Serialize, Deserialize)]
struct KeptRank {
    rank: u32,
    caused: f64,
    usual: Option<f64>,
    z: Option<f64>,
}

/// Encodes the inputs as JSON.
pub(super) fn write(inputs: &Inputs) -> serde_json::Result<String> {
    let ranks = inputs.ranks.iter().map(|one| KeptRank {
        rank: one.rank.value(),
        caused: one.caused,
        usual: one.usual,
        z: one.z,
    });
    serde_json::to_string(&KeptInputs {
        center: inputs.center,
        sigma: inputs.sigma,
        limit: inputs.limit,
        n_ranks: inputs.n_ranks,
        ranks: ranks.collect(),
    })
}

/// Decodes inputs from JSON; `None` for those of builds that compared ranks in another way.
pub(super) fn read(text: &str) -> Option<Inputs> {
    let kept: KeptInputs = serde_json::from_str(text).ok()?;
    let ranks = kept.ranks.iter().map(|one| RankWaiting {
        rank: Rank::new(one.rank),
        caused: one.caused,
        usual: one.usual,
        z: one.z,
    });
    Some(Inputs {
        center: kept.center,
        sigma: kept.sigma,
        limit: kept.limit,
        n_ranks: kept.n_ranks,
        ranks: ranks.collect(),
    })
}
