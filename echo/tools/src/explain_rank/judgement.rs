//! Incidents with the inputs of their judgement.

use echo_analysis::advice::for_culprit;
use echo_analysis::evidence::HostFact;
use echo_core::model::detector_output::Incident;
use echo_core::model::inputs::Inputs;
use schemars::JsonSchema;
use serde::Serialize;

use crate::outlier::{Outlier, culprit};
use crate::quality::Presence;

/// An incident in which the rank is the culprit.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JudgedIncident {
    /// Incident as in the answer of `find_outlier_nodes`.
    #[serde(flatten)]
    pub outlier: Outlier,
    /// Inputs of the judgement at its strongest; null for incidents stored before inputs were kept.
    pub inputs: Option<JudgedInputs>,
}

/// Inputs of a judgement.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JudgedInputs {
    /// Sequence number of the first operation judged, within the busiest communicator of the
    /// cohort.
    pub seq_first: u64,
    /// Sequence number of the last operation judged.
    pub seq_last: u64,
    /// Number of iterations that these operations make up.
    pub iterations: f64,
    /// Mean iteration time, milliseconds.
    pub period_ms: f64,
    /// Median healthy iteration time, milliseconds; null when unknown.
    pub healthy_ms: Option<f64>,
    /// Median of the signal over the ranks, milliseconds per iteration.
    pub center_ms: f64,
    /// Scale for z-scores (robust standard deviation), milliseconds.
    pub sigma_ms: f64,
    /// Threshold: minimum z-score of a late rank.
    pub critical_z: f64,
    /// Threshold: minimum effect, as a share of the iteration time.
    pub effect_gate: f64,
    /// Share of the expected ranks that reported.
    pub coverage: f64,
    /// Number of ranks compared.
    pub n_ranks: u32,
    /// Ranks with the largest lags, largest first.
    pub lags: Vec<JudgedLag>,
}

/// Lag of one rank in a judgement.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JudgedLag {
    /// Rank within the job.
    pub rank: u32,
    /// Lag behind the median of its peers, milliseconds per iteration.
    pub lag_ms: f64,
    /// Modified z-score of the lag.
    pub z: f64,
    /// Median blocked time of the peers of its role minus its own, milliseconds per iteration; null
    /// when unknown.
    pub own_ms: Option<f64>,
}

impl JudgedIncident {
    /// Converts an incident; `None` when it has no culprit. `facts` is the host evidence of its
    /// operations.
    pub(super) fn from_incident(
        incident: &Incident,
        presence: &Presence,
        facts: &[HostFact],
    ) -> Option<Self> {
        let mut outlier = Outlier::from_culprit(incident, presence)?;
        outlier.advice = for_culprit(culprit(incident)?, facts);
        Some(Self {
            outlier,
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
