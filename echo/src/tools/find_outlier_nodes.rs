//! Which ranks hold back their cohorts, how sure that is, and since when.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::conclusion::{Incident, IncidentState};
use crate::tools::host_evidence::Scope;
use crate::tools::outlier::{Condition, Evidence, Outlier, as_of, culprit};
use crate::tools::quality::{DataQuality, Presence, known_cluster, with_note};
use crate::tools::registry::Tool;
use crate::tools::schemas::ClusterName;
use crate::tools::time::{AnswerWindow, Asked, TimeArg, WindowArg};
use crate::tools::{ToolContext, ToolError};

/// Most incidents of one answer whose hosts are looked into, gravest first.
const MAX_EXPLAINED: usize = 20;

const DEFAULT_LIMIT: usize = 40;

const MAX_LIMIT: usize = 1_000;

/// Which ranks are meant, and when.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FindOutlierNodes {
    /// Cluster; all clusters when absent.
    #[schemars(with = "Option<ClusterName>")]
    pub cluster: Option<String>,
    /// Begin: RFC 3339, Unix milliseconds, or relative such as `now-15m`. Default: an hour before `to`.
    pub from: Option<TimeArg>,
    /// End, exclusive: RFC 3339, Unix milliseconds, or relative such as `now-15m`. Default: now.
    pub to: Option<TimeArg>,
    /// Instead of `from` and `to`: `all`, or a length up to now such as `15m`, `24h`, `7d`.
    pub window: Option<WindowArg>,
    /// Largest number of outliers, and of conditions, 40 when absent.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<usize>,
}

/// Outliers and conditions that were there at any time in the window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Outliers {
    /// Cluster that was asked about; null for all.
    pub cluster: Option<String>,
    /// Window of event time.
    pub window: AnswerWindow,
    /// Ranks that stand out: open ones first, then those that do the most damage, each followed by its victims. Their state
    /// is that at the end of the window.
    pub outliers: Vec<Outlier>,
    /// What is wrong with whole cohorts, in the same order.
    pub conditions: Vec<Condition>,
    /// Whether the least grave were left out, because there are more than `limit`.
    pub truncated: bool,
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

    async fn call(self, context: &ToolContext) -> Result<Outliers, ToolError> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            let message = format!("{limit} does not lie between 1 and {MAX_LIMIT}");
            return Err(ToolError::invalid("limit", message));
        }
        let cluster = known_cluster(context, self.cluster.as_deref()).await?;
        let asked = Asked {
            from: self.from,
            to: self.to,
            window: self.window,
        };
        let window = asked.resolve(context, cluster.as_ref()).await?;
        let incidents = context.store.incidents(cluster.as_ref(), window).await?;
        let incidents = incidents
            .into_iter()
            .filter_map(|incident| as_of(incident, context, window));
        let mut incidents: Vec<Incident> = incidents.collect();
        incidents.sort_by(gravest_first);
        let presence = Presence::of(context, cluster.as_ref(), window).await?;
        let quality = presence.quality(context, window);
        let mut outliers = outliers(context, (&incidents, limit), &presence).await?;
        let mut conditions: Vec<Condition> = incidents.iter().filter_map(Condition::of).collect();
        let truncated = outliers.len().max(conditions.len()) > limit;
        outliers.truncate(limit);
        conditions.truncate(limit);
        Ok(Outliers {
            window: window.into(),
            outliers,
            conditions,
            truncated,
            data_quality: with_note(quality, context, (cluster.as_ref(), window)).await?,
            cluster: cluster.map(|cluster| cluster.to_string()),
        })
    }
}

/// Each culprit with the evidence, and its victims after it; no more than one above the limit is looked into.
async fn outliers(
    context: &ToolContext,
    (incidents, limit): (&[Incident], usize),
    presence: &Presence,
) -> Result<Vec<Outlier>, ToolError> {
    let mut outliers = Vec::new();
    let mut explained = 0;
    for incident in incidents {
        if outliers.len() > limit {
            break;
        }
        let Some(mut outlier) = Outlier::culprit(incident) else {
            continue;
        };
        if presence.has_host_evidence() && explained < MAX_EXPLAINED {
            explained += 1;
            outlier.evidence.extend(why(context, incident).await?);
        }
        outliers.push(outlier);
        outliers.extend(Outlier::victims(incident, presence));
    }
    Ok(outliers)
}

/// What the culprit's host went through beyond its peers.
async fn why(context: &ToolContext, incident: &Incident) -> Result<Vec<Evidence>, ToolError> {
    let Some((scope, culprit)) = Scope::of(incident).zip(culprit(incident)) else {
        return Ok(Vec::new());
    };
    let facts = scope.facts(context, culprit.rank).await?;
    let telling = facts.iter().filter(|fact| fact.stands_out());
    Ok(telling.map(Evidence::from).collect())
}

fn gravest_first(a: &Incident, b: &Incident) -> Ordering {
    let is_cleared = |incident: &Incident| incident.state == IncidentState::Cleared;
    is_cleared(a)
        .cmp(&is_cleared(b))
        .then(b.effect_ratio.total_cmp(&a.effect_ratio))
        .then(a.first_seen.cmp(&b.first_seen))
        .then(a.id.cmp(&b.id))
}

#[cfg(test)]
mod tests;
