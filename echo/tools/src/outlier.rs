//! Incidents as shown in answers, in their state at the end of the window.

use std::sync::Arc;

use echo_analysis::advice;
use echo_analysis::evidence::HostFact;
use echo_core::ids::{NodeId, Rank};
use echo_core::model::detector_output::{
    Condition as DetectedCondition, ConditionKind, Culprit, Finding, Incident,
};
use echo_core::model::event::Origin;
use echo_core::text::decimal;
use schemars::JsonSchema;
use serde::Serialize;

pub use crate::lifecycle::Lifecycle;
use crate::quality::Presence;
use crate::recurrence::Recurrence;

/// Maximum number of ranks listed per incident.
const MAX_LISTED: usize = 64;

/// Role of a culprit in answers.
const CULPRIT: &str = "culprit";

/// A rank that holds back its job, or a node whose health is bad.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Outlier {
    /// Incident id, 16 hexadecimal digits.
    pub incident_id: String,
    /// Cluster of the node.
    pub cluster: String,
    /// Node of the rank, or the node whose health is bad.
    pub node_id: String,
    /// Rank within the job; null for a node that reports its health as a whole.
    pub rank: Option<u32>,
    /// UUID of its GPU; null when unknown.
    pub gpu_uuid: Option<String>,
    /// Model of its GPU; null when unknown.
    pub gpu_model: Option<String>,
    /// Kubernetes namespace; null when unknown.
    pub namespace: Option<String>,
    /// Kubernetes pod; null when unknown.
    pub pod: Option<String>,
    /// `culprit`: its lag slows down the other ranks. `unhealthy_node`: the health score that the
    /// node reports is below the threshold of its peers; its effect is unknown and costs nothing.
    pub role: &'static str,
    /// Class of the cause: `host`, `device`, `network` or `inconclusive`; only of a
    /// culprit.
    pub class: Option<&'static str>,
    /// Source of the lag measurement: `host` or `device`; only of a culprit.
    pub source: Option<&'static str>,
    /// Signal by which it was found: `host_gap`, `wait`, `arrival` or `device_wait`; only of a
    /// culprit.
    pub signal: Option<&'static str>,
    /// Lag behind the median of its peers, milliseconds per iteration; null when unknown.
    pub lag_ms: Option<f64>,
    /// Slowdown of the cohort: increase of the iteration time as a share of the healthy iteration
    /// time (0.1 is 10 % slower); only of a culprit.
    pub effect_ratio: Option<f64>,
    /// Confidence, 0 to 1.
    pub confidence: f64,
    /// State, severity and times of the incident.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// Reason, in one sentence.
    pub reason: String,
    /// Evidence: the signal by which it was found, then host metrics in which it differs from its
    /// peers during the same operations. Only of a culprit.
    pub evidence: Vec<Evidence>,
    /// What to do about a culprit, most important first.
    pub advice: Vec<String>,
    /// Earlier incidents of a culprit's GPU and node.
    pub recurrence: Option<Recurrence>,
}

/// A measurement of a rank compared with its peers.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Evidence {
    /// Name of the signal or metric.
    pub signal: String,
    /// Meaning of the signal or metric.
    pub meaning: String,
    /// Value of the rank, in `unit`; null when unknown.
    pub own: Option<f64>,
    /// Median of its peers, in `unit`; null when unknown.
    pub peers: Option<f64>,
    /// Unit of `own` and `peers`.
    pub unit: &'static str,
    /// Lag behind the median of its peers, milliseconds per iteration; null for evidence that
    /// explains but does not measure the lag.
    pub lag_ms: Option<f64>,
    /// Modified z-score: distance from the median of the peers in robust standard deviations; null
    /// when the peers do not vary.
    pub z: Option<f64>,
    /// The comparison as a sentence.
    pub sentence: String,
}

/// A problem of a whole cohort or job.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Condition {
    /// Incident id, 16 hexadecimal digits.
    pub incident_id: String,
    /// Cluster of the cohort.
    pub cluster: String,
    /// `uniform_slowdown`: all ranks are slower and none is late. `late_node`: all ranks of one node
    /// are late, at once or by turns. `network`: transfers take longer. `stall`, `hang`: an
    /// operation has not ended for seconds, or never ends. `crash`: a process ended by a signal or
    /// with an error while the others ran. `identity_conflict`: two nodes report the same rank.
    /// `unhealthy_node`: a node reports a bad health score.
    pub kind: &'static str,
    /// Affected ranks, such as those missing from a hang, at most 64; empty when all ranks are
    /// affected.
    pub ranks: Vec<u32>,
    /// Number of affected ranks; 0 when all are affected.
    pub rank_count: usize,
    /// True when no rank progresses although none is behind: the ranks of a hang that do not wait
    /// may have entered its operation.
    pub standstill: bool,
    /// True when it is known that these ranks are the reason of a hang.
    #[serde(skip)]
    pub(crate) explained: bool,
    /// Details beyond the kind; may be empty.
    pub detail: String,
    /// Slowdown of the cohort: increase of the iteration time as a share of the healthy iteration
    /// time (0.1 is 10 % slower).
    pub effect_ratio: f64,
    /// Confidence, 0 to 1.
    pub confidence: f64,
    /// State, severity and times of the incident.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// Reason, in one sentence.
    pub reason: String,
    /// What to do about it.
    pub advice: Vec<String>,
}

impl Outlier {
    /// True for a culprit.
    pub fn is_culprit(&self) -> bool {
        self.role == CULPRIT
    }

    /// Converts the culprit or the unhealthy node of an incident; `None` when the incident has
    /// neither.
    pub fn from_incident(incident: &Incident, presence: &Presence) -> Option<Self> {
        Self::from_culprit(incident, presence).or_else(|| Self::from_node(incident, presence))
    }

    fn from_node(incident: &Incident, presence: &Presence) -> Option<Self> {
        let node = unhealthy_node(incident)?;
        let rank = condition(incident)?.ranks.first().copied();
        let origin = rank
            .and_then(|rank| presence.origin_of(&incident.cluster, incident.job.as_ref(), rank))
            .filter(|origin| origin.node == *node)
            .map(AsRef::as_ref);
        Some(Self {
            rank: rank.map(Rank::value),
            gpu_uuid: owned(origin.and_then(|origin| origin.gpu_uuid.as_ref())),
            ..Self::shared_fields(
                incident,
                (ConditionKind::UnhealthyNode.name(), node),
                origin,
            )
        })
    }

    /// Converts the culprit of an incident; `None` when the incident has none.
    pub fn from_culprit(incident: &Incident, presence: &Presence) -> Option<Self> {
        let culprit = culprit(incident)?;
        let origin = presence.origin_of(&incident.cluster, incident.job.as_ref(), culprit.rank);
        // A job that restarted elsewhere may have given the rank another GPU.
        let gpu_uuid = culprit.gpu_uuid.as_ref();
        let origin = origin
            .filter(|origin| origin.node == culprit.node)
            .filter(|origin| gpu_uuid.is_none() || origin.gpu_uuid.as_ref() == gpu_uuid);
        let origin = origin.map(AsRef::as_ref);
        Some(Self {
            rank: Some(culprit.rank.value()),
            gpu_uuid: owned(gpu_uuid.or_else(|| origin?.gpu_uuid.as_ref())),
            class: Some(culprit.class.name()),
            source: Some(culprit.source.name()),
            signal: Some(culprit.signal.name()),
            lag_ms: Some(culprit.lag_ms),
            effect_ratio: Some(incident.effect_ratio),
            evidence: vec![Evidence::from_signal(incident, culprit)],
            advice: advice::for_culprit(culprit, &[]),
            ..Self::shared_fields(incident, (CULPRIT, &culprit.node), origin)
        })
    }

    /// Adds the host evidence that stands out, and the advice for it.
    pub fn explain(&mut self, culprit: &Culprit, facts: &[HostFact]) {
        let notable = facts.iter().filter(|fact| fact.stands_out());
        self.evidence.extend(notable.map(Evidence::from));
        self.advice = advice::for_culprit(culprit, facts);
    }

    /// Fields that a culprit and an unhealthy node share; `origin` is that of the rank.
    fn shared_fields(
        incident: &Incident,
        (role, node): (&'static str, &NodeId),
        origin: Option<&Origin>,
    ) -> Self {
        Self {
            incident_id: incident.id.to_string(),
            cluster: incident.cluster.to_string(),
            node_id: node.to_string(),
            rank: None,
            gpu_uuid: None,
            gpu_model: owned(origin.and_then(|origin| origin.gpu_model.as_ref())),
            namespace: owned(origin.and_then(|origin| origin.namespace.as_ref())),
            pod: owned(origin.and_then(|origin| origin.pod.as_ref())),
            role,
            class: None,
            source: None,
            signal: None,
            lag_ms: None,
            effect_ratio: None,
            confidence: incident.confidence,
            lifecycle: Lifecycle::from_incident(incident),
            reason: incident.reason.clone(),
            evidence: Vec::new(),
            advice: Vec::new(),
            recurrence: None,
        }
    }
}

impl Evidence {
    /// Evidence of the signal by which a culprit was found.
    fn from_signal(incident: &Incident, culprit: &Culprit) -> Self {
        let signal = culprit.signal;
        let inputs = incident.inputs.as_deref();
        let own = inputs.and_then(|inputs| {
            let mut ranks = inputs.ranks.iter();
            ranks.find(|one| one.rank == culprit.rank)
        });
        Self {
            signal: signal.name().to_owned(),
            meaning: signal.meaning().to_owned(),
            own: own.map(|own| own.caused),
            peers: inputs.map(|inputs| inputs.center),
            unit: "ms per second",
            lag_ms: Some(culprit.lag_ms),
            z: Some(culprit.z),
            sentence: format!(
                "{} ms per step later than its peers ({})",
                decimal(culprit.lag_ms, 1),
                signal.meaning()
            ),
        }
    }
}

impl From<&HostFact> for Evidence {
    fn from(fact: &HostFact) -> Self {
        Self {
            signal: fact.metric.to_string(),
            meaning: fact.meaning.clone().into_owned(),
            own: Some(fact.own),
            peers: fact.peers,
            unit: fact.unit.name(),
            lag_ms: None,
            z: fact.z,
            sentence: fact.sentence(),
        }
    }
}

impl Condition {
    /// Converts the condition of an incident; `None` when the incident has a culprit.
    pub fn from_incident(incident: &Incident) -> Option<Self> {
        let found = condition(incident)?;
        Some(Self {
            incident_id: incident.id.to_string(),
            cluster: incident.cluster.to_string(),
            kind: found.kind.name(),
            ranks: first_ranks(&found.ranks),
            rank_count: found.ranks.len(),
            standstill: found.is_standstill,
            explained: found.is_explained,
            detail: found.detail.clone(),
            effect_ratio: incident.effect_ratio,
            confidence: incident.confidence,
            lifecycle: Lifecycle::from_incident(incident),
            reason: incident.reason.clone(),
            advice: advice::for_condition(found),
        })
    }
}

/// Culprit of an incident, if it has one.
pub const fn culprit(incident: &Incident) -> Option<&Culprit> {
    match &incident.finding {
        Finding::Culprit(culprit) => Some(culprit),
        Finding::Condition(_) => None,
    }
}

fn owned(name: Option<&Arc<str>>) -> Option<String> {
    name.map(|name| name.as_ref().to_owned())
}

fn first_ranks(ranks: &[Rank]) -> Vec<u32> {
    let first = ranks.iter().take(MAX_LISTED);
    first.map(|rank| rank.value()).collect()
}

/// Condition of an incident, if it has one.
pub const fn condition(incident: &Incident) -> Option<&DetectedCondition> {
    match &incident.finding {
        Finding::Culprit(_) => None,
        Finding::Condition(condition) => Some(condition),
    }
}

/// Condition of a job in which an operation does not end; `None` for other incidents.
pub fn hang(incident: &Incident) -> Option<&DetectedCondition> {
    condition(incident).filter(|one| one.kind.is_hang())
}

/// Node of an incident that is about the health of a node.
pub fn unhealthy_node(incident: &Incident) -> Option<&NodeId> {
    let found = condition(incident)?;
    let is_health = found.kind == ConditionKind::UnhealthyNode;
    found.node.as_ref().filter(|_| is_health)
}

#[cfg(test)]
mod tests;
