//! Inputs of a judgement as JSON. Fields may be added; rows of older builds stay readable.

use echo_core::ids::Rank;
use echo_core::model::event::SeqRange;
use echo_core::model::inputs::{Inputs, RankLag};
use serde::{Deserialize, Serialize};

/// Mirrors [`Inputs`], which is independent of the storage format.
#[derive(Debug, Serialize, Deserialize)]
struct KeptInputs {
    seq_first: u64,
    seq_last: u64,
    iterations: f64,
    period_ms: f64,
    healthy_ms: Option<f64>,
    center_ms: f64,
    sigma_ms: f64,
    critical_z: f64,
    effect_gate: f64,
    coverage: f64,
    n_ranks: u32,
    lags: Vec<KeptLag>,
}

/// Mirrors [`RankLag`].
#[derive(Debug, Serialize, Deserialize)]
struct KeptLag {
    rank: u32,
    lag_ms: f64,
    z: f64,
    own_ms: Option<f64>,
}

/// Encodes the inputs as JSON.
pub(super) fn write(inputs: &Inputs) -> serde_json::Result<String> {
    let lags = inputs.lags.iter().map(|lag| KeptLag {
        rank: lag.rank.value(),
        lag_ms: lag.lag_ms,
        z: lag.z,
        own_ms: lag.own_ms,
    });
    serde_json::to_string(&KeptInputs {
        seq_first: inputs.seqs.first(),
        seq_last: inputs.seqs.last(),
        iterations: inputs.iterations,
        period_ms: inputs.period_ms,
        healthy_ms: inputs.healthy_ms,
        center_ms: inputs.center_ms,
        sigma_ms: inputs.sigma_ms,
        critical_z: inputs.critical_z,
        effect_gate: inputs.effect_gate,
        coverage: inputs.coverage,
        n_ranks: inputs.n_ranks,
        lags: lags.collect(),
    })
}

/// Decodes inputs from JSON; `None` if the text holds something else.
pub(super) fn read(text: &str) -> Option<Inputs> {
    let kept: KeptInputs = serde_json::from_str(text).ok()?;
    let lags = kept.lags.iter().map(|lag| RankLag {
        rank: Rank::new(lag.rank),
        lag_ms: lag.lag_ms,
        z: lag.z,
        own_ms: lag.own_ms,
    });
    Some(Inputs {
        seqs: SeqRange::new(kept.seq_first, kept.seq_last)?,
        iterations: kept.iterations,
        period_ms: kept.period_ms,
        healthy_ms: kept.healthy_ms,
        center_ms: kept.center_ms,
        sigma_ms: kept.sigma_ms,
        critical_z: kept.critical_z,
        effect_gate: kept.effect_gate,
        coverage: kept.coverage,
        n_ranks: kept.n_ranks,
        lags: lags.collect(),
    })
}
