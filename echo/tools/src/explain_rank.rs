//! Explains one rank in comparison with its peers.

use echo_core::ids::{ClusterId, NodeId, Rank};
use echo_core::model::detector_output::Incident;
use echo_core::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host_evidence::Compared;
use crate::lifecycle::as_of;
use crate::outlier::{Condition, Evidence, condition, culprit, hang, unhealthy_node};
use crate::picture::Format;
use crate::quality::DataQuality;
use crate::recurrence::History;
use crate::schemas::{ClusterName, Name};
use crate::scope::{Scope, ScopeRequest, only_cluster};
use crate::time::{AnswerWindow, TimeArg, TimeRange, WindowArg};
use crate::tool::{Plot, Tool};
use crate::{ToolContext, ToolError};

pub mod chains;
pub mod communicators;
mod downsample;
pub mod judgement;
pub mod lag_series;
pub mod last_arrivals;
pub mod own_verdicts;
mod plot;
pub mod subject;
mod summary;
mod top_stack;

use chains::HostReports;
use judgement::JudgedIncident;
use lag_series::{LagSeries, RankBlocks};
use own_verdicts::SelfVerdict;
use subject::{RankIdentity, Subject};

/// Maximum number of incidents of each kind per answer.
const MAX_INCIDENTS: usize = 20;

/// Rank and time range.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRank {
    /// Cluster name. Default: the only cluster.
    #[serde(default)]
    #[schemars(with = "Option<ClusterName>", skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Rank within its job.
    #[schemars(range(max = 4_294_967_295_u32))]
    pub rank: u32,
    /// Job name; required only when the rank reported in several jobs.
    #[serde(default)]
    #[schemars(with = "Option<Name>")]
    pub job: Option<String>,
    /// Start: RFC 3339, date, Unix ms, or `now-15m`. Default: 1h before `to`.
    #[serde(default)]
    pub from: Option<TimeArg>,
    /// End, exclusive. Default: now.
    #[serde(default)]
    pub to: Option<TimeArg>,
    /// Instead of `from`, `to`: `all`, or a duration like `15m`.
    #[serde(default)]
    pub window: Option<WindowArg>,
    /// Adds a plot of the lag over time.
    #[serde(default)]
    #[schemars(with = "Format")]
    pub plot: Option<Format>,
}

/// Explanation of a rank: its incidents and the data behind them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// Requested cluster.
    pub cluster: String,
    /// Window of event time that the answer covers.
    pub window: AnswerWindow,
    /// Identity of the rank.
    pub who: RankIdentity,
    /// Summary in a few sentences, most important first.
    pub summary: String,
    /// Incidents in which this rank is the culprit, most severe first, with the inputs of the
    /// judgement.
    pub incidents: Vec<JudgedIncident>,
    /// Problems of its whole cohort or job, most severe first.
    pub conditions: Vec<Condition>,
    /// True when one of the two lists above was cut to its 20 most severe entries; use a shorter
    /// window to see the others.
    pub truncated: bool,
    /// Host metrics compared with those of its peers, largest difference first. They explain
    /// incidents but do not raise any.
    pub evidence: Vec<Evidence>,
    /// Time in which the evidence was compared; null without evidence.
    pub evidence_basis: Option<EvidenceBasis>,
    /// What its process lost time to during its incidents, or in the window without one.
    pub host: HostReports,
    /// Lag over time, block by block, computed by the same code as the incidents.
    pub lag_series: LagSeries,
    /// Verdicts of the agent of this rank on itself between two policies, latest first.
    pub self_verdicts: Vec<SelfVerdict>,
    /// Coverage and recency of the data behind the answer.
    pub data_quality: DataQuality,
}

/// Time in which evidence was compared, over the same operations on all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EvidenceBasis {
    /// Incident whose time it is; null when it is that of all operations of the rank in the window.
    pub incident_id: Option<String>,
    /// First instant, RFC 3339, on the clock of the rank.
    pub from: String,
    /// Last instant.
    pub to: String,
}

impl Tool for ExplainRank {
    const NAME: &'static str = "fleet.cluster.explain_rank";
    const TITLE: &'static str = "Explain rank";
    const DESCRIPTION: &'static str = "Compares one rank (GPU) with its peers: whether it slows them down, since when, with what \
        confidence, how its host differs and what it loses time to, and its lag over time. Use it for ranks of find_outlier_nodes.";
    const SUPPORTS_PLOT: bool = true;
    type Answer = Explanation;

    fn scope_request(&self) -> ScopeRequest {
        ScopeRequest {
            cluster: Some(self.cluster.clone()),
            time: TimeRange {
                from: self.from,
                to: self.to,
                window: self.window,
            },
            page_window: None,
        }
    }

    async fn run(mut self, context: &ToolContext) -> Result<Explanation, ToolError> {
        if self.cluster.is_empty() {
            self.cluster = only_cluster(context).await?.to_string();
        }
        let scope = Scope::resolve(context, self.scope_request()).await?;
        self.call(&scope).await
    }

    async fn call(self, scope: &Scope<'_>) -> Result<Explanation, ToolError> {
        let presence = scope.presence().await?;
        let subject = Subject::find(presence, Rank::new(self.rank), self.job.as_deref())?;
        Box::pin(explain(scope, &subject)).await
    }

    fn headline(answer: &Explanation) -> Option<String> {
        Some(answer.summary.clone())
    }

    fn plot(&self) -> Option<Plot<Explanation>> {
        Some(Plot {
            format: self.plot?,
            layout: plot::figure,
        })
    }
}

impl EvidenceBasis {
    fn is_of(&self, incident: &Incident) -> bool {
        self.incident_id.as_deref() == Some(incident.id.to_string().as_str())
    }
}

async fn explain(scope: &Scope<'_>, subject: &Subject) -> Result<Explanation, ToolError> {
    let cluster = scope.require_cluster()?;
    let presence = scope.presence().await?;
    let incidents = incidents_of_subject(scope, subject).await?;
    let names_rank = |incident: &&Incident| {
        culprit(incident).is_some_and(|culprit| culprit.rank == subject.rank)
    };
    let own: Vec<&Incident> = incidents.iter().filter(names_rank).collect();
    let missing_from: Vec<&Incident> = incidents
        .iter()
        .filter(|incident| hang(incident).is_some_and(|hang| hang.ranks.contains(&subject.rank)))
        .collect();
    let raised: Vec<Nanos> = own.iter().map(|one| one.raised_at).collect();
    let history = History::load(scope.context, &raised).await?;
    let blocks = RankBlocks::load(scope, subject).await?;
    let related = [own.as_slice(), &missing_from].concat();
    let (basis, facts) = match basis(&related, cluster, subject, &blocks) {
        Some((basis, compared)) => {
            let facts = compared.host_facts(scope.context, subject.rank).await?;
            (Some(basis), facts)
        }
        None => (None, Vec::new()),
    };
    let conditions: Vec<&Incident> = incidents
        .iter()
        .filter(|incident| affects(incident, subject))
        .collect();
    let mut explanation = Explanation {
        cluster: cluster.to_string(),
        window: scope.window.into(),
        who: subject.identity(blocks.role()),
        summary: String::new(),
        truncated: own.len().max(conditions.len()) > MAX_INCIDENTS,
        incidents: most_severe(&own, |one| {
            let is_basis = basis.as_ref().is_some_and(|basis| basis.is_of(one));
            let facts = if is_basis { facts.as_slice() } else { &[] };
            let mut judged = JudgedIncident::from_incident(one, presence, facts)?;
            let caller = &scope.context.caller;
            judged.outlier.recurrence = Some(history.recurrence(one, culprit(one)?, caller));
            Some(judged)
        }),
        conditions: most_severe(&conditions, Condition::from_incident),
        evidence: facts.iter().map(Evidence::from).collect(),
        evidence_basis: basis.filter(|_| !facts.is_empty()),
        host: HostReports::load(scope, subject, &related).await?,
        lag_series: blocks.series(scope, subject).await?,
        self_verdicts: own_verdicts::load(scope, subject).await?,
        data_quality: scope.quality().await?,
    };
    explanation.summary = summary::summarize(&explanation, &facts);
    Ok(explanation)
}

/// Converts the most severe incidents.
fn most_severe<T>(incidents: &[&Incident], convert: impl FnMut(&Incident) -> Option<T>) -> Vec<T> {
    let most_severe = incidents.iter().take(MAX_INCIDENTS).copied();
    most_severe.filter_map(convert).collect()
}

/// Loads the incidents of the rank's job and node in their state at the end of the window, most
/// severe first.
async fn incidents_of_subject(
    scope: &Scope<'_>,
    subject: &Subject,
) -> Result<Vec<Incident>, ToolError> {
    let (context, window) = (scope.context, scope.window);
    let incidents = context.store.incidents(scope.cluster.as_ref(), window);
    let incidents = incidents.await?;
    let mut incidents: Vec<Incident> = incidents
        .into_iter()
        .filter(|incident| {
            incident.job.as_ref() == subject.job()
                || unhealthy_node(incident) == Some(subject.node())
        })
        .filter_map(|incident| as_of(incident, context, window))
        .collect();
    incidents.sort_by(|a, b| b.effect_ratio.total_cmp(&a.effect_ratio));
    Ok(incidents)
}

/// True for a condition of all ranks, of a group that contains the rank, or of its node. All ranks of
/// a job wait in a hang.
fn affects(incident: &Incident, subject: &Subject) -> bool {
    condition(incident).is_some_and(|condition| {
        let is_its_node = |node: &NodeId| node == subject.node();
        let is_its_rank = condition.ranks.is_empty()
            || condition.ranks.contains(&subject.rank)
            || hang(incident).is_some();
        is_its_rank && condition.node.as_ref().is_none_or(is_its_node)
    })
}

/// Returns the time of the most severe incident, or else that of all operations of the rank in the
/// window.
fn basis(
    incidents: &[&Incident],
    cluster: &ClusterId,
    subject: &Subject,
    blocks: &RankBlocks,
) -> Option<(EvidenceBasis, Compared)> {
    let of_incident = incidents.first().map(|incident| {
        let compared = Compared::from_incident(incident);
        (Some(incident.id), compared)
    });
    let all = || {
        let (from, to) = blocks.span()?;
        let compared = Compared {
            cluster: cluster.clone(),
            job: subject.job().cloned(),
            from,
            to,
        };
        Some((None, compared))
    };
    let (incident, compared) = of_incident.or_else(all)?;
    let basis = EvidenceBasis {
        incident_id: incident.map(|id| id.to_string()),
        from: compared.from.to_string(),
        to: compared.to.to_string(),
    };
    Some((basis, compared))
}

#[cfg(test)]
mod tests;
