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
    /// What the ranks were compared by, at its strongest; null for incidents stored by versions that
    /// compared them in another way.
    pub inputs: Option<JudgedInputs>,
}

/// Ranks of the job as they were compared, milliseconds per second and peer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JudgedInputs {
    /// Median of the waiting that the ranks cause.
    pub center: f64,
    /// Robust standard deviation of the same (MAD); null below three ranks.
    pub sigma: Option<f64>,
    /// Threshold: a rank above it is an outlier.
    pub limit: f64,
    /// Number of ranks compared.
    pub n_ranks: u32,
    /// The ranks that cause most waiting, most first.
    pub ranks: Vec<JudgedRank>,
}

/// Waiting that one rank causes, milliseconds per second and peer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JudgedRank {
    /// Rank within the job.
    pub rank: u32,
    /// Time for which each peer waited for it.
    pub caused: f64,
    /// Median of the same in its own healthy past; null without a past.
    pub usual: Option<f64>,
    /// Modified z-score; null below three ranks.
    pub z: Option<f64>,
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
        let ranks = inputs.ranks.iter().map(|one| JudgedRank {
            rank: one.rank.value(),
            caused: one.caused,
            usual: one.usual,
            z: one.z,
        });
        Self {
            center: inputs.center,
            sigma: inputs.sigma,
            limit: inputs.limit,
            n_ranks: inputs.n_ranks,
            ranks: ranks.collect(),
        }
    }
}
