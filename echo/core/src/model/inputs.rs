//! Inputs of a decision, stored with its verdict.

use crate::ids::Rank;
use crate::model::event::SeqRange;

/// Inputs of a decision, stored so that it can be checked afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// Evaluated operations of the cohort's busiest communicator.
    pub seqs: SeqRange,
    /// Iterations in these operations.
    pub iterations: f64,
    /// Mean duration of an iteration, milliseconds.
    pub period_ms: f64,
    /// Median duration of a healthy iteration, milliseconds, when known.
    pub healthy_ms: Option<f64>,
    /// Median of the ranks' own signal, milliseconds per iteration.
    pub center_ms: f64,
    /// Scale that lags were measured against, milliseconds.
    pub sigma_ms: f64,
    /// Smallest z-score that counted as late.
    pub critical_z: f64,
    /// Smallest effect that counted, as a share of the period.
    pub effect_gate: f64,
    /// Share of the expected ranks that reported.
    pub coverage: f64,
    /// Number of ranks compared.
    pub n_ranks: u32,
    /// The latest ranks, latest first; at most [`Self::MAX_LAGS`].
    pub lags: Vec<RankLag>,
}

impl Inputs {
    /// Maximum number of ranks in the list.
    pub const MAX_LAGS: usize = 16;
}

/// Lag of one rank in one decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankLag {
    /// Rank within the job.
    pub rank: Rank,
    /// Lag behind the median of its peers, milliseconds per iteration.
    pub lag_ms: f64,
    /// The same in scales (modified z-score).
    pub z: f64,
    /// Reduction of its blocked time compared with the median of its role peers, milliseconds per
    /// iteration, when known.
    pub own_ms: Option<f64>,
}
