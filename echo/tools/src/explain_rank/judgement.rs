//! Incidents with what they were judged by.

use echo_core::model::detector_output::Incident;
use echo_core::model::inputs::Inputs;
use schemars::JsonSchema;
use serde::Serialize;

use crate::outlier::Outlier;

/// An incident of the rank.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JudgedIncident {
    /// The incident as `find_outlier_nodes` shows it.
    #[serde(flatten)]
    pub outlier: Outlier,
    /// What the judgement rested on when it was strongest; null for incidents stored before that was kept.
    pub inputs: Option<JudgedInputs>,
}

/// What a judgement rested on.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JudgedInputs {
    /// First operation judged, its sequence number in the cohort's busiest communicator.
    pub seq_first: u64,
    /// Last operation judged.
    pub seq_last: u64,
    /// Iterations that they make up.
    pub iterations: f64,
    /// Mean duration of an iteration, milliseconds.
    pub period_ms: f64,
    /// Median duration of a healthy iteration, milliseconds; null when none was known.
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
    /// The latest ranks, latest first.
    pub lags: Vec<JudgedLag>,
}

/// Lag of one rank in a judgement.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JudgedLag {
    /// Rank within the job.
    pub rank: u32,
    /// Behind the median of its peers, milliseconds per iteration.
    pub lag_ms: f64,
    /// The same in scales (modified z-score).
    pub z: f64,
    /// How much less than the median of its role peers it was blocked, milliseconds per iteration; null when not known.
    pub own_ms: Option<f64>,
}

impl JudgedIncident {
    /// The incident when it names a rank.
    pub(super) fn from_incident(incident: &Incident) -> Option<Self> {
        Some(Self {
            outlier: Outlier::from_culprit(incident)?,
            inputs: incident.inputs.as_deref().map(JudgedInputs::from),
        })
    }
}

impl From<&Inputs> for JudgedInputs {
    fn from(inputs: &Inputs) -> Self {
        let lags = inputs.lags.iter().map(|lag| JudgedLag {
            rank: lag.rank.value(),
            lag_ms: lag.lag_ms,
            z: lag.z,
            own_ms: lag.own_ms,
        });
        Self {
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
        }
    }
}
