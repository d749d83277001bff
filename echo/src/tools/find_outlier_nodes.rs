//! Which ranks hold back their cohorts, how sure that is, and since when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::conclusion::{Culprit, Finding, Incident, IncidentState};
use crate::tools::quality::{DataQuality, Presence, known_cluster, with_note};
use crate::tools::registry::Tool;
use crate::tools::time::{AnswerWindow, Asked, TimeArg, WindowArg};
use crate::tools::{ToolContext, ToolError};

/// Which ranks are meant, and when.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FindOutlierNodes {
    /// Cluster; all clusters when absent.
    pub cluster: Option<String>,
    /// First instant of the window: RFC 3339, Unix milliseconds, or relative such as `now-15m`. One hour before `to` when absent.
    pub from: Option<TimeArg>,
    /// First instant after the window, in the same forms. Now when absent.
    pub to: Option<TimeArg>,
    /// Instead of `from` and `to`: `all` for everything stored, or a length up to now such as `15m`, `24h` or `7d`.
    pub window: Option<WindowArg>,
}

/// Outliers and conditions that were there at any time in the window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Outliers {
    /// Cluster that was asked about; null for all.
    pub cluster: Option<String>,
    /// Window of event time.
    pub window: AnswerWindow,
    /// Ranks that stand out: open ones first, then those that do the most damage.
    pub outliers: Vec<Outlier>,
    /// What is wrong with whole cohorts, in the same order.
    pub conditions: Vec<Condition>,
    /// How much of the cluster the answer rests on.
    pub data_quality: DataQuality,
}

/// A rank that stands out.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Outlier {
    /// Identity of the incident, 16 hexadecimal digits.
    pub incident_id: String,
    /// Cluster of the node.
    pub cluster: String,
    /// Node of the rank.
    pub node_id: String,
    /// Rank within the job.
    pub rank: u32,
    /// Identity of its GPU; null when not known.
    pub gpu_uuid: Option<String>,
    /// `culprit`: it holds back the others.
    pub role: &'static str,
    /// What kind of cause: `host` when the host hands work to the GPU too late.
    pub class: &'static str,
    /// Where it was measured: `host` or `device`.
    pub source: &'static str,
    /// The signal that convicted it: `host_gap`, `wait` or `arrival`.
    pub signal: &'static str,
    /// `open` or `cleared`.
    pub state: &'static str,
    /// How much later than the median of its peers it is, milliseconds per iteration.
    pub lag_ms: f64,
    /// How much longer an iteration of the cohort takes, as a share of the healthy period.
    pub effect_ratio: f64,
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// Beginning of the first affected iteration, RFC 3339.
    pub first_seen: String,
    /// End of the last affected iteration so far, RFC 3339.
    pub last_seen: String,
    /// When there was enough evidence to say so, RFC 3339.
    pub raised_at: String,
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
    /// Job of the rank; null when not known.
    pub job: Option<String>,
    /// `history` when the healthy period was measured, `none` when it is estimated because none was ever seen.
    pub baseline: &'static str,
    /// Duration of an iteration during the incident, milliseconds.
    pub period_ms: f64,
    /// Healthy duration of an iteration, milliseconds.
    pub healthy_period_ms: f64,
    /// Why, in one sentence.
    pub reason: String,
    /// What convicted it.
    pub evidence: Vec<Evidence>,
}

/// A measurement that speaks against a rank.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Evidence {
    /// Name of the signal.
    pub signal: &'static str,
    /// What it measures.
    pub meaning: &'static str,
    /// Distance from the median of the peers, milliseconds per iteration.
    pub lag_ms: f64,
    /// The same distance in usual deviations of the peers (modified z-score).
    pub z: f64,
}

/// What is wrong with a whole cohort.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Condition {
    /// Identity of the incident, 16 hexadecimal digits.
    pub incident_id: String,
    /// Cluster of the cohort.
    pub cluster: String,
    /// `uniform_slowdown` when every rank is slower and none is late, `inconclusive` when the signals do not say which.
    pub kind: &'static str,
    /// Why, in one sentence.
    pub reason: String,
    /// `open` or `cleared`.
    pub state: &'static str,
    /// How much longer an iteration of the cohort takes, as a share of the healthy period.
    pub effect_ratio: f64,
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// Beginning of the first affected iteration, RFC 3339.
    pub first_seen: String,
    /// End of the last affected iteration so far, RFC 3339.
    pub last_seen: String,
    /// When there was enough evidence to say so, RFC 3339.
    pub raised_at: String,
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
    /// `history` when the healthy period was measured, `none` when it is estimated.
    pub baseline: &'static str,
    /// Duration of an iteration during the incident, milliseconds.
    pub period_ms: f64,
    /// Healthy duration of an iteration, milliseconds.
    pub healthy_period_ms: f64,
}

impl Tool for FindOutlierNodes {
    const NAME: &'static str = "fleet.cluster.find_outlier_nodes";
    const TITLE: &'static str = "Find outlier nodes";
    const DESCRIPTION: &'static str = "Finds the ranks (GPUs) and nodes that hold back a training or inference job: \
        how late each is, how much the job suffers, how sure that is, since when, and whether it goes on. Also reports \
        slowdowns without a culprit. Empty lists with quorum_met mean a healthy cluster; without it they mean too little data.";
    type Answer = Outliers;

    async fn call(self, context: &ToolContext) -> Result<Outliers, ToolError> {
        let cluster = known_cluster(context, self.cluster.as_deref()).await?;
        let asked = Asked {
            from: self.from,
            to: self.to,
            window: self.window,
        };
        let window = asked.resolve(context, cluster.as_ref()).await?;
        let mut incidents = context.store.incidents(cluster.as_ref(), window).await?;
        incidents.sort_by(|a, b| {
            let is_cleared = |incident: &Incident| incident.state == IncidentState::Cleared;
            is_cleared(a)
                .cmp(&is_cleared(b))
                .then(b.effect_ratio.total_cmp(&a.effect_ratio))
                .then(a.first_seen.cmp(&b.first_seen))
                .then(a.id.cmp(&b.id))
        });
        let presence = Presence::of(context, cluster.as_ref(), window).await?;
        let quality = presence.quality(context, window);
        Ok(Outliers {
            window: window.into(),
            outliers: incidents.iter().filter_map(outlier).collect(),
            conditions: incidents.iter().filter_map(condition).collect(),
            data_quality: with_note(quality, context, cluster.as_ref()).await?,
            cluster: cluster.map(|cluster| cluster.to_string()),
        })
    }
}

fn outlier(incident: &Incident) -> Option<Outlier> {
    let Finding::Culprit(culprit) = &incident.finding else {
        return None;
    };
    Some(Outlier {
        incident_id: incident.id.to_string(),
        cluster: incident.cluster.to_string(),
        node_id: culprit.node.to_string(),
        rank: culprit.rank.value(),
        gpu_uuid: culprit.gpu_uuid.as_deref().map(str::to_owned),
        role: "culprit",
        class: culprit.class.name(),
        source: culprit.source.name(),
        signal: culprit.signal.name(),
        state: state(incident),
        lag_ms: culprit.lag_ms,
        effect_ratio: incident.effect_ratio,
        confidence: incident.confidence,
        first_seen: incident.first_seen.to_string(),
        last_seen: incident.last_seen.to_string(),
        raised_at: incident.raised_at.to_string(),
        first_iteration: incident.first_iteration,
        raised_iteration: incident.raised_iteration,
        cleared_iteration: incident.cleared_iteration,
        occurrences: incident.occurrences,
        cohort: incident.cohort.as_ref().to_owned(),
        job: incident.job.as_ref().map(ToString::to_string),
        baseline: incident.baseline.name(),
        period_ms: incident.period_ms,
        healthy_period_ms: incident.baseline.period_ms(),
        reason: incident.reason.clone(),
        evidence: vec![evidence(culprit)],
    })
}

const fn evidence(culprit: &Culprit) -> Evidence {
    Evidence {
        signal: culprit.signal.name(),
        meaning: culprit.signal.meaning(),
        lag_ms: culprit.lag_ms,
        z: culprit.z,
    }
}

fn condition(incident: &Incident) -> Option<Condition> {
    let kind = match &incident.finding {
        Finding::Culprit(_) => return None,
        Finding::Condition(condition) => condition.kind.name(),
    };
    Some(Condition {
        incident_id: incident.id.to_string(),
        cluster: incident.cluster.to_string(),
        kind,
        reason: incident.reason.clone(),
        state: state(incident),
        effect_ratio: incident.effect_ratio,
        confidence: incident.confidence,
        first_seen: incident.first_seen.to_string(),
        last_seen: incident.last_seen.to_string(),
        raised_at: incident.raised_at.to_string(),
        first_iteration: incident.first_iteration,
        raised_iteration: incident.raised_iteration,
        cleared_iteration: incident.cleared_iteration,
        occurrences: incident.occurrences,
        cohort: incident.cohort.as_ref().to_owned(),
        job: incident.job.as_ref().map(ToString::to_string),
        baseline: incident.baseline.name(),
        period_ms: incident.period_ms,
        healthy_period_ms: incident.baseline.period_ms(),
    })
}

const fn state(incident: &Incident) -> &'static str {
    match incident.state {
        IncidentState::Open => "open",
        IncidentState::Cleared => "cleared",
    }
}

#[cfg(test)]
mod tests;
