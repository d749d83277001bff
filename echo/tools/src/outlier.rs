//! Incidents as answers show them, in the state that they had at the end of the window.

use echo_analysis::evidence::HostFact;
use echo_core::ids::Rank;
use echo_core::model::detector_output::{
    Condition as DetectedCondition, Culprit, Finding, Incident, IncidentState, Signal,
};
use echo_core::model::inputs::RankLag;
use echo_core::units::Window;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ToolContext;
use crate::quality::Presence;

/// Most ranks that are listed beside an incident.
const MAX_LISTED: usize = 64;

/// A state and a role as answers name them.
const OPEN: &str = "open";
const CULPRIT: &str = "culprit";

/// A rank that stands out.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Outlier {
    /// Identity of the incident, 16 hexadecimal digits.
    pub incident_id: String,
    /// Cluster of the node.
    pub cluster: String,
    /// Node of the rank; null for a victim that did not report in the window.
    pub node_id: Option<String>,
    /// Rank within the job.
    pub rank: u32,
    /// Identity of its GPU; null when not known.
    pub gpu_uuid: Option<String>,
    /// `culprit`: it holds back the others. `victim`: it looks late only because it waits for a culprit.
    pub role: &'static str,
    /// Ranks that a victim waits for; empty for a culprit.
    pub victim_of: Vec<u32>,
    /// Ranks that look late only because they wait for this one, 64 of them at most; empty for a victim.
    pub victims: Vec<u32>,
    /// Number of ranks that wait for it.
    pub victim_count: usize,
    /// What kind of cause: `host`, `device`, `network`, `mixed` or `inconclusive`; null for a victim.
    pub class: Option<&'static str>,
    /// Where the lag was measured: `host` or `device`; null for a victim.
    pub source: Option<&'static str>,
    /// The signal that convicted it: `host_gap`, `wait`, `arrival` or `device_wait`; null for a victim.
    pub signal: Option<&'static str>,
    /// How much later than the median of its peers it is, milliseconds per iteration; null when not known.
    pub lag_ms: Option<f64>,
    /// How much longer an iteration of the cohort takes, as a share of the healthy period; null for a victim, which does
    /// no damage of its own.
    pub effect_ratio: Option<f64>,
    /// How sure, 0 to 1; null for a victim.
    pub confidence: Option<f64>,
    /// When it was, and how grave.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// Why, in one sentence.
    pub reason: String,
    /// What convicted it, then what its host went through beyond its peers in the same operations. Empty for a victim.
    pub evidence: Vec<Evidence>,
}

/// A measurement that speaks against a rank.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Evidence {
    /// Name of the signal or metric.
    pub signal: String,
    /// What it measures.
    pub meaning: String,
    /// The rank's own value, in `unit`; null when not known.
    pub own: Option<f64>,
    /// Median of its peers, in `unit`; null when not known.
    pub peers: Option<f64>,
    /// Unit of both.
    pub unit: &'static str,
    /// How much later than the median of the peers it is, milliseconds per iteration; null for what only explains.
    pub lag_ms: Option<f64>,
    /// Distance from the median of the peers in usual deviations (modified z-score); null when there is no scale.
    pub z: Option<f64>,
    /// The same in words.
    pub sentence: String,
}

/// What is wrong with a whole cohort or job.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Condition {
    /// Identity of the incident, 16 hexadecimal digits.
    pub incident_id: String,
    /// Cluster of the cohort.
    pub cluster: String,
    /// `uniform_slowdown`: every rank is slower and none is late. `stage_imbalance`: the ranks of one role have more to do.
    /// `data_imbalance`: another rank is last every time. `network`: transfers take longer. `stall`, `hang`: an operation
    /// has not ended for seconds, or never ends. `identity_conflict`: two nodes report the same rank.
    /// `inconclusive`: the signals do not say what it is.
    pub kind: &'static str,
    /// Ranks that it is about, such as those missing from a hang, 64 of them at most; empty for everybody.
    pub ranks: Vec<u32>,
    /// Number of ranks that it is about; 0 for everybody.
    pub rank_count: usize,
    /// What is known beyond the kind; may be empty.
    pub detail: String,
    /// How much longer an iteration of the cohort takes, as a share of the healthy period.
    pub effect_ratio: f64,
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// When it was, and how grave.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// Why, in one sentence.
    pub reason: String,
}

/// When an incident was, and how grave.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Lifecycle {
    /// `open` or `cleared`, at the end of the window.
    pub state: &'static str,
    /// How grave the damage is: `info`, `warn` or `critical`.
    pub severity: &'static str,
    /// Raised at once because it was grave, before it had persisted.
    pub provisional: bool,
    /// Share of the blocks since the beginning that were affected, 0 to 1: 1 when it is always the same rank.
    pub stability: f64,
    /// Beginning of the first affected iteration, RFC 3339.
    pub first_seen: String,
    /// End of the last affected iteration so far, RFC 3339.
    pub last_seen: String,
    /// When there was enough evidence to say so, RFC 3339.
    pub raised_at: String,
    /// When it was cleared, RFC 3339; null while it is open, and where it is not known.
    pub cleared_at: Option<String>,
    /// First affected iteration.
    pub first_iteration: f64,
    /// Iteration at which it was raised.
    pub raised_iteration: f64,
    /// Iteration at which it was cleared; null while it is open.
    pub cleared_iteration: Option<f64>,
    /// How often it was there: 1 when it never came back.
    pub occurrences: u32,
    /// Cohort of ranks that were compared.
    pub cohort: String,
    /// Job of the cohort; null when not known.
    pub job: Option<String>,
    /// `history` when the healthy period was measured, `none` when it is estimated because none was ever seen.
    pub baseline: &'static str,
    /// Duration of an iteration during the incident, milliseconds.
    pub period_ms: f64,
    /// Healthy duration of an iteration, milliseconds.
    pub healthy_period_ms: f64,
}

/// The incident as it stood at the end of the window; nothing when it had not been raised yet. A window that reaches up
/// to now or beyond shows the latest state: clocks of nodes may run ahead of Echo's.
pub fn as_of(mut incident: Incident, context: &ToolContext, window: Window) -> Option<Incident> {
    let end = window.to();
    if end >= context.clock.now() {
        return Some(incident);
    }
    if incident.raised_at >= end {
        return None;
    }
    if incident.cleared_at.is_some_and(|cleared| cleared >= end) {
        incident.state = IncidentState::Open;
        incident.cleared_at = None;
        incident.cleared_iteration = None;
    }
    incident.last_seen = incident.last_seen.min(end);
    Some(incident)
}

impl Outlier {
    /// Whether it holds back the others.
    pub fn is_culprit(&self) -> bool {
        self.role == CULPRIT
    }

    /// The rank that an incident is about; nothing when it is about none.
    pub fn from_culprit(incident: &Incident) -> Option<Self> {
        let culprit = culprit(incident)?;
        Some(Self {
            node_id: Some(culprit.node.to_string()),
            rank: culprit.rank.value(),
            gpu_uuid: culprit.gpu_uuid.as_deref().map(str::to_owned),
            role: CULPRIT,
            victims: first_ranks(&culprit.victims),
            victim_count: culprit.victims.len(),
            class: Some(culprit.class.name()),
            source: Some(culprit.source.name()),
            signal: Some(culprit.signal.name()),
            lag_ms: Some(culprit.lag_ms),
            effect_ratio: Some(incident.effect_ratio),
            confidence: Some(incident.confidence),
            reason: incident.reason.clone(),
            evidence: vec![Evidence::from_signal(incident, culprit)],
            ..Self::shared_fields(incident)
        })
    }

    /// The ranks that wait for the rank that an incident is about.
    pub fn from_victims(incident: &Incident, presence: &Presence) -> Vec<Self> {
        let Some(culprit) = culprit(incident) else {
            return Vec::new();
        };
        let victims = culprit.victims.iter().take(MAX_LISTED);
        victims
            .map(|rank| Self::from_victim(incident, culprit, *rank, presence))
            .collect()
    }

    /// One of them.
    pub fn from_victim(
        incident: &Incident,
        culprit: &Culprit,
        rank: Rank,
        presence: &Presence,
    ) -> Self {
        let origin = presence.origin_of(&incident.cluster, incident.job.as_ref(), rank);
        let lag = judged_lag(incident, rank);
        Self {
            node_id: origin.map(|origin| origin.node.to_string()),
            rank: rank.value(),
            gpu_uuid: origin.and_then(|origin| origin.gpu_uuid.as_deref().map(str::to_owned)),
            role: "victim",
            victim_of: vec![culprit.rank.value()],
            lag_ms: lag.map(|lag| lag.lag_ms),
            reason: format!(
                "rank {rank} looks late only because it waits for rank {}",
                culprit.rank
            ),
            ..Self::shared_fields(incident)
        }
    }

    /// What culprit and victims of an incident share.
    fn shared_fields(incident: &Incident) -> Self {
        Self {
            incident_id: incident.id.to_string(),
            cluster: incident.cluster.to_string(),
            node_id: None,
            rank: 0,
            gpu_uuid: None,
            role: "",
            victim_of: Vec::new(),
            victims: Vec::new(),
            victim_count: 0,
            class: None,
            source: None,
            signal: None,
            lag_ms: None,
            effect_ratio: None,
            confidence: None,
            lifecycle: Lifecycle::from_incident(incident),
            reason: String::new(),
            evidence: Vec::new(),
        }
    }
}

impl Evidence {
    /// The signal that convicted a rank.
    fn from_signal(incident: &Incident, culprit: &Culprit) -> Self {
        let signal = culprit.signal;
        // The middle of waits is not kept beside the rank's own: they stand in for signals that are missing.
        let is_own = matches!(signal, Signal::HostGap | Signal::Arrival);
        let judged = incident
            .inputs
            .as_deref()
            .zip(judged_lag(incident, culprit.rank))
            .filter(|_| is_own);
        Self {
            signal: signal.name().to_owned(),
            meaning: signal.meaning().to_owned(),
            own: judged.map(|(inputs, lag)| inputs.center_ms + lag.lag_ms),
            peers: judged.map(|(inputs, _)| inputs.center_ms),
            unit: "ms per iteration",
            lag_ms: Some(culprit.lag_ms),
            z: Some(culprit.z),
            sentence: format!(
                "{:.1} ms per step later than its peers ({})",
                culprit.lag_ms,
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

impl Lifecycle {
    fn from_incident(incident: &Incident) -> Self {
        Self {
            state: match incident.state {
                IncidentState::Open => OPEN,
                IncidentState::Cleared => "cleared",
            },
            severity: incident.severity.name(),
            provisional: incident.is_provisional,
            stability: incident.stability,
            first_seen: incident.first_seen.to_string(),
            last_seen: incident.last_seen.to_string(),
            raised_at: incident.raised_at.to_string(),
            cleared_at: incident.cleared_at.map(|instant| instant.to_string()),
            first_iteration: incident.first_iteration,
            raised_iteration: incident.raised_iteration,
            cleared_iteration: incident.cleared_iteration,
            occurrences: incident.occurrences,
            cohort: incident.cohort.as_ref().to_owned(),
            job: incident.job.as_ref().map(ToString::to_string),
            baseline: incident.baseline.name(),
            period_ms: incident.period_ms,
            healthy_period_ms: incident.baseline.period_ms(),
        }
    }

    /// Whether it went on at the end of the window.
    pub fn is_open(&self) -> bool {
        self.state == OPEN
    }
}

impl Condition {
    /// What an incident says of a whole cohort; nothing when it is about a rank.
    pub fn from_incident(incident: &Incident) -> Option<Self> {
        let found = condition(incident)?;
        Some(Self {
            incident_id: incident.id.to_string(),
            cluster: incident.cluster.to_string(),
            kind: found.kind.name(),
            ranks: first_ranks(&found.ranks),
            rank_count: found.ranks.len(),
            detail: found.detail.clone(),
            effect_ratio: incident.effect_ratio,
            confidence: incident.confidence,
            lifecycle: Lifecycle::from_incident(incident),
            reason: incident.reason.clone(),
        })
    }
}

/// The rank that an incident is about, when it is about one.
pub const fn culprit(incident: &Incident) -> Option<&Culprit> {
    match &incident.finding {
        Finding::Culprit(culprit) => Some(culprit),
        Finding::Condition(_) => None,
    }
}

fn first_ranks(ranks: &[Rank]) -> Vec<u32> {
    let first = ranks.iter().take(MAX_LISTED);
    first.map(|rank| rank.value()).collect()
}

/// What is wrong with a whole cohort, when that is what an incident is about.
pub const fn condition(incident: &Incident) -> Option<&DetectedCondition> {
    match &incident.finding {
        Finding::Culprit(_) => None,
        Finding::Condition(condition) => Some(condition),
    }
}

fn judged_lag(incident: &Incident, rank: Rank) -> Option<RankLag> {
    let lags = &incident.inputs.as_deref()?.lags;
    lags.iter().find(|lag| lag.rank == rank).copied()
}
