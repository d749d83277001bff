//! Which ranks hold back their cohorts, how sure that is, and since when.

use std::cmp::Ordering;

use echo_core::ids::ClusterId;
use echo_core::model::detector_output::{Incident, IncidentState};
use echo_core::units::Window;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host_evidence::Operations;
use crate::list_cursor::ListCursor;
use crate::outlier::{Condition, Evidence, Outlier, as_of, culprit};
use crate::quality::DataQuality;
use crate::schemas::ClusterName;
use crate::scope::{Scope, ScopeRequest};
use crate::time::{AnswerWindow, TimeArg, TimeRange, WindowArg};
use crate::tool::Tool;
use crate::{ToolContext, ToolError};

/// Most incidents of one answer whose hosts are looked into, most_severe first.
const MAX_EXPLAINED: usize = 20;

const DEFAULT_LIMIT: usize = 40;

/// Which ranks are meant, and when.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FindOutlierNodes {
    /// Cluster; all clusters when absent.
    #[schemars(with = "Option<ClusterName>")]
    pub cluster: Option<String>,
    /// Begin: RFC 3339, Unix milliseconds, or `now-15m`. Default: an hour before `to`.
    pub from: Option<TimeArg>,
    /// End, exclusive, in the same forms. Default: now.
    pub to: Option<TimeArg>,
    /// Instead of `from` and `to`: `all`, or a length up to now such as `15m`, `24h`, `7d`.
    pub window: Option<WindowArg>,
    /// Most culprits and conditions listed, 40 when absent.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<usize>,
    /// `next_cursor` of the page before; leave out `from`, `to` and `window` then.
    #[schemars(with = "Option<String>")]
    pub cursor: Option<ListCursor>,
}

/// Outliers and conditions that were there at any time in the window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Outliers {
    /// Cluster that was asked about; null for all.
    pub cluster: Option<String>,
    /// Window of event time.
    pub window: AnswerWindow,
    /// Ranks that stand out: open ones first, then those that do the most damage. Each is followed by its victims, where
    /// `limit` leaves capacity beside the culprits. Their state is that at the end of the window.
    pub outliers: Vec<Outlier>,
    /// What is wrong with whole cohorts, in the same order.
    pub conditions: Vec<Condition>,
    /// Whether there are more culprits or conditions, less grave than these.
    pub truncated: bool,
    /// Pass it as `cursor` to get the next_cursor page; null on the last one.
    pub next_cursor: Option<String>,
    /// How much of the cluster the answer rests on.
    pub data_quality: DataQuality,
}

impl Tool for FindOutlierNodes {
    const NAME: &'static str = "fleet.cluster.find_outlier_nodes";
    const TITLE: &'static str = "Find outlier nodes";
    const DESCRIPTION: &'static str = "Finds the ranks (GPUs) and nodes that hold back a training or inference job: \
        how late each is, how much the job suffers, how sure that is, since when, and whether it goes on. Also reports \
        slowdowns without a culprit. Empty lists with quorum_met mean a healthy cluster; without it they mean too little data.";
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

    async fn call(self, scope: &Scope<'_>) -> Result<Outliers, ToolError> {
        let incidents = incidents(scope.context, scope.cluster.as_ref(), scope.window).await?;
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        let offset = self.cursor.map_or(0, |cursor| cursor.offset);
        let (culprits, conditions): (Vec<&Incident>, Vec<&Incident>) = incidents
            .iter()
            .partition(|incident| culprit(incident).is_some());
        let next_offset = offset.saturating_add(limit);
        let truncated = culprits.len().max(conditions.len()) > next_offset;
        let next_page = ListCursor {
            window: scope.window,
            offset: next_offset,
        };
        let culprits: Vec<&Incident> = culprits.into_iter().skip(offset).take(limit).collect();
        let conditions = conditions.into_iter().skip(offset).take(limit);
        Ok(Outliers {
            cluster: scope.cluster.as_ref().map(ToString::to_string),
            window: scope.window.into(),
            outliers: outliers(scope, &culprits, limit).await?,
            conditions: conditions.filter_map(Condition::from_incident).collect(),
            truncated,
            next_cursor: truncated.then(|| next_page.to_string()),
            data_quality: scope.quality().await?,
        })
    }
}

/// Incidents that were there at any time in the window, in the state that they had at its end, most_severe first.
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

/// Each culprit with the evidence, and its victims after it, as long as there are not more than `limit` in all.
async fn outliers(
    scope: &Scope<'_>,
    culprits: &[&Incident],
    limit: usize,
) -> Result<Vec<Outlier>, ToolError> {
    let presence = scope.presence().await?;
    let mut outliers = Vec::new();
    let mut capacity = limit.saturating_sub(culprits.len());
    for (index, incident) in culprits.iter().enumerate() {
        let Some(mut outlier) = Outlier::from_culprit(incident) else {
            continue;
        };
        if presence.has_host_evidence() && index < MAX_EXPLAINED {
            outlier
                .evidence
                .extend(host_evidence(scope.context, incident).await?);
        }
        outliers.push(outlier);
        let mut victims = Outlier::from_victims(incident, presence);
        victims.truncate(capacity);
        capacity -= victims.len();
        outliers.extend(victims);
    }
    Ok(outliers)
}

/// What the culprit's host went through beyond its peers.
async fn host_evidence(
    context: &ToolContext,
    incident: &Incident,
) -> Result<Vec<Evidence>, ToolError> {
    let Some((operations, culprit)) = Operations::from_incident(incident).zip(culprit(incident))
    else {
        return Ok(Vec::new());
    };
    let facts = operations.host_facts(context, culprit.rank).await?;
    let notable = facts.iter().filter(|fact| fact.stands_out());
    Ok(notable.map(Evidence::from).collect())
}

fn most_severe_first(a: &Incident, b: &Incident) -> Ordering {
    let is_cleared = |incident: &Incident| incident.state == IncidentState::Cleared;
    is_cleared(a)
        .cmp(&is_cleared(b))
        .then(b.effect_ratio.total_cmp(&a.effect_ratio))
        .then(a.first_seen.cmp(&b.first_seen))
        .then(a.id.cmp(&b.id))
}

#[cfg(test)]
mod tests;
