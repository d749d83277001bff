//! Finds the ranks that hold back their cohorts, and the nodes whose health is bad.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use echo_analysis::evidence::HostFact;
use echo_core::ids::{ClusterId, IncidentId, Rank};
use echo_core::model::detector_output::{Incident, IncidentState};
use echo_core::units::{Nanos, Window};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host_evidence::{Compared, host_facts};
use crate::lifecycle::as_of;
use crate::list_cursor::ListCursor;
use crate::outlier::{Condition, Outlier, culprit, unhealthy_node};
use crate::quality::DataQuality;
use crate::recurrence::History;
use crate::schemas::ClusterName;
use crate::scope::{Scope, ScopeRequest};
use crate::time::{AnswerWindow, TimeArg, TimeRange, WindowArg};
use crate::tool::Tool;
use crate::{ToolContext, ToolError, lost_times, unknown_comms, unseen_operations};

mod headline;

/// Maximum number of incidents per answer for which host evidence is loaded, most severe first.
const MAX_EXPLAINED: usize = 20;

const DEFAULT_LIMIT: usize = 40;

/// Cluster and time range.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FindOutlierNodes {
    /// Cluster name. Default: all clusters.
    #[schemars(with = "Option<ClusterName>")]
    pub cluster: Option<String>,
    /// Start: RFC 3339, date, Unix ms, or `now-15m`. Default: 1h before `to`.
    pub from: Option<TimeArg>,
    /// End, exclusive. Default: now.
    pub to: Option<TimeArg>,
    /// Instead of `from`, `to`: `all`, or a duration like `15m`.
    pub window: Option<WindowArg>,
    /// Minimum culprit lag, ms per iteration.
    #[schemars(range(min = 0))]
    pub min_lag_ms: Option<f64>,
    /// Minimum culprit slowdown; 0.1 is 10 %.
    #[schemars(range(min = 0))]
    pub min_slowdown: Option<f64>,
    /// Minimum culprit confidence, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub min_confidence: Option<f64>,
    /// Maximum number of entries. Default: 40.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<usize>,
    /// `next_cursor` of the previous page; omit the window.
    #[schemars(with = "Option<String>")]
    pub cursor: Option<ListCursor>,
}

/// Outliers and conditions that were open at any time in the window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Outliers {
    /// Requested cluster; null for all clusters.
    pub cluster: Option<String>,
    /// Window of event time that the answer covers.
    pub window: AnswerWindow,
    /// Outlier ranks in their state at the end of the window: open ones first, then by effect,
    /// largest first. Nodes that report bad health follow, as their effect is unknown.
    pub outliers: Vec<Outlier>,
    /// Problems of whole cohorts or jobs without a culprit, in the same order.
    pub conditions: Vec<Condition>,
    /// True when there are more culprits or conditions, less severe than these.
    pub truncated: bool,
    /// Pass as `cursor` to get the next page; null on the last page.
    pub next_cursor: Option<String>,
    /// Coverage and recency of the data behind the answer.
    pub data_quality: DataQuality,
}

impl Tool for FindOutlierNodes {
    const NAME: &'static str = "fleet.cluster.find_outlier_nodes";
    const TITLE: &'static str = "Find outlier nodes";
    const DESCRIPTION: &'static str = "Finds straggler ranks (GPUs) and nodes that slow down a training or inference job: lag, \
        cause, effect on the job, confidence, since when, and whether it is still open. Also reports unhealthy nodes, and \
        slowdowns without a single culprit. Empty lists mean health only if data_quality.quorum_met is true.";
    type Answer = Outliers;

    fn scope_request(&self) -> ScopeRequest {
        ScopeRequest {
            cluster: self.cluster.clone(),
            time: TimeRange {
                from: self.from,
                to: self.to,
                window: self.window,
            },
            page_window: self.cursor.map(|cursor| cursor.window),
        }
    }

    fn headline(answer: &Outliers) -> Option<String> {
        Some(headline::headline(answer))
    }

    async fn call(self, scope: &Scope<'_>) -> Result<Outliers, ToolError> {
        let incidents = incidents(scope.context, scope.cluster.as_ref(), scope.window).await?;
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        let offset = self.cursor.map_or(0, |cursor| cursor.offset);
        let (named, conditions): (Vec<&Incident>, Vec<&Incident>) = incidents
            .iter()
            .filter(|incident| self.admits(incident))
            .partition(|incident| is_named(incident));
        let next_offset = offset.saturating_add(limit);
        let truncated = named.len().max(conditions.len()) > next_offset;
        let next_page = ListCursor {
            window: scope.window,
            offset: next_offset,
        };
        let named: Vec<&Incident> = named.into_iter().skip(offset).take(limit).collect();
        let conditions = conditions.into_iter().skip(offset).take(limit);
        let mut data_quality = scope.quality().await?;
        if let Some(last_minute) = lost_times::last_minute(scope).await? {
            data_quality.add_note(lost_times::note(scope, last_minute).await?);
            data_quality.add_note(unknown_comms::note(scope, last_minute).await?);
        }
        let presence = scope.presence().await?;
        data_quality.add_note(unseen_operations::note(presence, &incidents));
        Ok(Outliers {
            cluster: scope.cluster.as_ref().map(ToString::to_string),
            window: scope.window.into(),
            outliers: outliers(scope, &named).await?,
            conditions: conditions.filter_map(Condition::from_incident).collect(),
            truncated,
            next_cursor: truncated.then(|| next_page.to_string()),
            data_quality,
        })
    }
}

impl FindOutlierNodes {
    /// Returns whether the incident reaches the minimums. Conditions always do: a hang has neither
    /// lag nor slowdown.
    fn admits(&self, incident: &Incident) -> bool {
        let reaches = |value: f64, minimum: Option<f64>| minimum.is_none_or(|least| value >= least);
        culprit(incident).is_none_or(|culprit| {
            reaches(culprit.lag_ms, self.min_lag_ms)
                && reaches(incident.effect_ratio, self.min_slowdown)
                && reaches(incident.confidence, self.min_confidence)
        })
    }
}

/// Returns the incidents that were open at any time in the window, in their state at its end, most
/// severe first.
pub async fn incidents(
    context: &ToolContext,
    cluster: Option<&ClusterId>,
    window: Window,
) -> Result<Vec<Incident>, ToolError> {
    let incidents = context.store.incidents(cluster, window).await?;
    let incidents = incidents
        .into_iter()
        .filter_map(|incident| as_of(incident, context, window));
    let mut incidents: Vec<Incident> = incidents.collect();
    incidents.sort_by(most_severe_first);
    Ok(incidents)
}

/// Returns true for an incident that names a rank or a node.
fn is_named(incident: &Incident) -> bool {
    culprit(incident).is_some() || unhealthy_node(incident).is_some()
}

/// Returns each culprit with its evidence, and each unhealthy node.
async fn outliers(scope: &Scope<'_>, named: &[&Incident]) -> Result<Vec<Outlier>, ToolError> {
    let presence = scope.presence().await?;
    let culprits = named.iter().filter(|one| culprit(one).is_some());
    let raised: Vec<Nanos> = culprits.map(|one| one.raised_at).collect();
    let history = History::load(scope.context, &raised).await?;
    let mut facts = BTreeMap::new();
    if presence.has_host_evidence() {
        let explained = named.iter().take(MAX_EXPLAINED).copied();
        facts = host_facts_by_incident(scope.context, explained).await?;
    }
    let mut outliers = Vec::new();
    for incident in named {
        let Some(mut outlier) = Outlier::from_incident(incident, presence) else {
            continue;
        };
        if let (Some(culprit), Some(facts)) = (culprit(incident), facts.get(&incident.id)) {
            outlier.explain(culprit, facts);
        }
        let caller = &scope.context.caller;
        outlier.recurrence = culprit(incident).map(|one| history.recurrence(incident, one, caller));
        outliers.push(outlier);
    }
    Ok(outliers)
}

/// Returns the host evidence in which each culprit differs from its peers.
async fn host_facts_by_incident(
    context: &ToolContext,
    incidents: impl Iterator<Item = &Incident>,
) -> Result<BTreeMap<IncidentId, Vec<HostFact>>, ToolError> {
    let culprits = incidents.filter_map(|one| Some((one, culprit(one)?.rank)));
    let times = culprits.map(|(one, rank)| (one.id, rank, Compared::from_incident(one)));
    let times: Vec<(IncidentId, Rank, Compared)> = times.collect();
    let ranks: Vec<_> = times.iter().map(|(_, rank, time)| (*rank, time)).collect();
    let facts = host_facts(context, &ranks).await?;
    Ok(times.iter().map(|(id, ..)| *id).zip(facts).collect())
}

fn most_severe_first(a: &Incident, b: &Incident) -> Ordering {
    let is_cleared = |incident: &Incident| incident.state == IncidentState::Cleared;
    is_cleared(a)
        .cmp(&is_cleared(b))
        .then(b.effect_ratio.total_cmp(&a.effect_ratio))
        .then(b.severity.cmp(&a.severity))
        .then(a.first_seen.cmp(&b.first_seen))
        .then(a.id.cmp(&b.id))
}

#[cfg(test)]
mod tests;
