//! Loop of the actions: reads the open incidents from the store and passes them to the dispatcher.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use echo_actions::breaker::ClusterHealth;
use echo_actions::dispatcher::Dispatcher;
use echo_actions::notice::{Blame, Candidate, Notice};
use echo_actions::selection::Snapshot;
use echo_analysis::advice::for_condition;
use echo_core::error::chain;
use echo_core::ids::{ClusterId, Rank};
use echo_core::model::detector_output::{ConditionKind, Finding, Incident, IncidentState};
use echo_core::policy_table::PolicyTable;
use echo_core::units::{Nanos, Window};
use echo_store::Coverage;
use echo_tools::host_evidence::Compared;
use echo_tools::outlier::{Outlier, condition, culprit, hang};
use echo_tools::quality::Presence;
use echo_tools::recurrence::History;
use echo_tools::{ToolContext, ToolError};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, warn};

use crate::feedback::agents::agent_report;

/// Interval at which the policy is applied.
const EVERY: Duration = Duration::from_secs(1);

/// Message about a state that is not saved.
const UNSAVED: &str = "cannot keep the state of actions, so nothing is sent";

/// Time up to now in which a node has to report to count.
const REPORTED_WITHIN: Duration = Duration::from_mins(5);

/// Time for which events may wait for the detector.
const BEHIND_AFTER_MS: f64 = 30_000.0;

/// Incidents whose evidence is read in one pass, at most.
const MAX_EXPLAINED: usize = 20;

/// Loop of the actions.
#[derive(Debug)]
pub struct Actions {
    context: ToolContext,
    judged: watch::Receiver<u64>,
    dispatcher: Dispatcher,
    table: watch::Sender<Arc<PolicyTable>>,
    backlog: Backlog,
    /// Explanations of open incidents, which are read once.
    explained: BTreeMap<String, Explanation>,
    is_failing: bool,
}

/// What is read about an incident once.
#[derive(Debug, Clone, Default)]
struct Explanation {
    advice: Vec<String>,
    recurrence: Option<String>,
}

/// Whether the detector keeps up.
#[derive(Debug, Default)]
struct Backlog {
    /// A number of events that were committed, and when.
    mark: Option<(Nanos, u64)>,
}

impl Backlog {
    /// Returns true if events have waited for the detector for too long.
    fn is_behind(&mut self, (committed, judged): (u64, u64), now: Nanos) -> bool {
        match self.mark {
            Some((since, mark)) if judged < mark => now.millis_since(since) > BEHIND_AFTER_MS,
            _ => {
                self.mark = Some((now, committed));
                false
            }
        }
    }
}

impl Actions {
    /// Creates the loop. `judged` is the number of the last event that the detector has processed;
    /// `table` takes what is reported to agents.
    pub fn new(
        context: ToolContext,
        judged: watch::Receiver<u64>,
        dispatcher: Dispatcher,
        table: watch::Sender<Arc<PolicyTable>>,
    ) -> Self {
        Self {
            context,
            judged,
            dispatcher,
            table,
            backlog: Backlog::default(),
            explained: BTreeMap::new(),
            is_failing: false,
        }
    }

    /// Runs until `stop` turns true. Errors are logged, and the next pass tries again.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_tick = tokio::select! {
                _stop = stop.wait_for(|stop| *stop) => break,
                attempted = self.dispatcher.attempted() => {
                    self.note(UNSAVED, attempted);
                    false
                }
                _tick = ticks.tick() => true,
            };
            if is_tick && let Some(observed) = self.observe().await {
                self.note(UNSAVED, observed);
            }
        }
        if let Err(error) = self.dispatcher.stop().await {
            error!(error = chain(&error), "the state of actions is not saved");
        }
    }

    /// Logs the first of several failures in a row.
    fn note<E: std::error::Error>(&mut self, what: &str, result: Result<(), E>) {
        match result {
            Ok(()) => self.is_failing = false,
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                warn!(error = chain(&error), "{what}");
            }
            Err(_again) => {}
        }
    }

    /// Reads the open incidents and applies the policy; `None` if they cannot be read.
    async fn observe(&mut self) -> Option<std::io::Result<()>> {
        match self.snapshot().await {
            Ok(snapshot) => Some(self.apply(snapshot)),
            Err(error) => {
                self.note("cannot read the open incidents for actions", Err(error));
                None
            }
        }
    }

    /// Applies the policy, and replaces what is reported to agents.
    fn apply(&mut self, snapshot: Snapshot) -> std::io::Result<()> {
        self.dispatcher.observe(snapshot)?;
        let report = agent_report(self.dispatcher.agent_notices());
        self.table
            .send_if_modified(|table| Arc::make_mut(table).set_culprits(report));
        Ok(())
    }

    async fn snapshot(&mut self) -> Result<Snapshot, ToolError> {
        let now = self.context.clock.now();
        let store = &self.context.store;
        // Read in this order: an event is committed before it is judged.
        let judged = *self.judged.borrow();
        let committed = *store.committed().borrow();
        let mut snapshot = Snapshot {
            is_behind: self.backlog.is_behind((committed, judged), now),
            ..Snapshot::default()
        };
        // Open incidents are open after they were last seen, too.
        let Some(open) = Window::new(now, Nanos::LATEST) else {
            return Ok(snapshot);
        };
        let incidents = store.incidents(None, open).await?;
        let incidents: Vec<Incident> = incidents
            .into_iter()
            .filter(|one| one.state == IncidentState::Open)
            .filter(|one| culprit(one).is_some() || hang(one).is_some())
            .collect();
        if incidents.is_empty() {
            self.explained.clear();
            return Ok(snapshot);
        }
        let Some(recent) = Window::new(now.before(REPORTED_WITHIN), Nanos::LATEST) else {
            return Ok(snapshot);
        };
        let rows = store.coverage(None, recent).await?;
        let presence = Presence::from_rows(rows.clone());
        snapshot.clusters = health(rows);
        self.explain(&incidents, &presence).await?;
        let candidates = incidents
            .iter()
            .filter_map(|incident| self.candidate(incident, &presence));
        snapshot.candidates = candidates.collect();
        Ok(snapshot)
    }

    /// Reads the explanations of incidents that have none yet.
    async fn explain(
        &mut self,
        incidents: &[Incident],
        presence: &Presence,
    ) -> Result<(), ToolError> {
        let ids: BTreeSet<String> = incidents.iter().map(occurrence).collect();
        self.explained.retain(|known, _| ids.contains(known));
        let unknown = incidents
            .iter()
            .filter(|one| !self.explained.contains_key(&occurrence(one)));
        let unknown: Vec<&Incident> = unknown.take(MAX_EXPLAINED).collect();
        let raised: Vec<Nanos> = unknown.iter().map(|one| one.raised_at).collect();
        let history = History::load(&self.context, &raised).await?;
        for incident in unknown {
            let advice = self.advice(incident, presence).await?;
            let recurrence = culprit(incident).and_then(|culprit| {
                let recurrence = history.recurrence(incident, culprit, &self.context.caller);
                recurrence.sentence
            });
            let explanation = Explanation { advice, recurrence };
            self.explained.insert(occurrence(incident), explanation);
        }
        Ok(())
    }

    async fn advice(
        &self,
        incident: &Incident,
        presence: &Presence,
    ) -> Result<Vec<String>, ToolError> {
        if let Some(condition) = condition(incident) {
            return Ok(for_condition(condition));
        }
        let outlier = Outlier::from_culprit(incident, presence);
        let Some((mut outlier, culprit)) = outlier.zip(culprit(incident)) else {
            return Ok(Vec::new());
        };
        if presence.has_host_evidence() {
            let compared = Compared::from_incident(incident);
            let facts = compared.host_facts(&self.context, culprit.rank).await?;
            outlier.explain(culprit, &facts);
        }
        Ok(outlier.advice)
    }

    fn candidate(&self, incident: &Incident, presence: &Presence) -> Option<Candidate> {
        let blamed = Blamed::of(incident, presence)?;
        let explanation = self.explained.get(&occurrence(incident)).cloned();
        let Explanation { advice, recurrence } = explanation.unwrap_or_default();
        Some(Candidate {
            blame: blamed.blame,
            severity: incident.severity,
            notice: Notice {
                incident_id: incident.id.to_string(),
                occurrence: incident.occurrences,
                cluster: incident.cluster.to_string(),
                job: incident.job.as_ref().map(ToString::to_string),
                node: blamed.node,
                rank: blamed.rank.value(),
                gpu_uuid: blamed.gpu_uuid,
                class: blamed.blame.name().to_owned(),
                severity: incident.severity.name().to_owned(),
                confidence: incident.confidence,
                lag_ms: blamed.lag_ms,
                effect_ratio: incident.effect_ratio,
                reason: incident.reason.clone(),
                advice,
                recurrence,
                first_seen: incident.first_seen.to_string(),
                raised_at: incident.raised_at.to_string(),
            },
        })
    }
}

/// Rank to blame for an incident.
struct Blamed {
    blame: Blame,
    rank: Rank,
    node: String,
    gpu_uuid: Option<String>,
    lag_ms: f64,
}

impl Blamed {
    /// Returns the rank that is late, or the only one that did not join an operation.
    fn of(incident: &Incident, presence: &Presence) -> Option<Self> {
        match &incident.finding {
            Finding::Culprit(culprit) => Some(Self {
                blame: Blame::of_culprit(culprit.class)?,
                rank: culprit.rank,
                node: culprit.node.to_string(),
                gpu_uuid: culprit.gpu_uuid.as_ref().map(ToString::to_string),
                lag_ms: culprit.lag_ms,
            }),
            Finding::Condition(condition) => {
                let [rank] = *condition.ranks.as_slice() else {
                    return None;
                };
                let blame = match condition.kind {
                    ConditionKind::Hang => Blame::Hang,
                    ConditionKind::Crash => Blame::Crash,
                    _ => return None,
                };
                let job = incident.job.as_ref();
                let origin = presence.origin_of(&incident.cluster, job, rank);
                let origin = origin?;
                Some(Self {
                    blame,
                    rank,
                    node: origin.node.to_string(),
                    gpu_uuid: origin.gpu_uuid.as_ref().map(ToString::to_string),
                    lag_ms: 0.0,
                })
            }
        }
    }
}

fn occurrence(incident: &Incident) -> String {
    format!("{}/{}", incident.id, incident.occurrences)
}

/// How much of each cluster reports.
fn health(rows: Vec<Coverage>) -> BTreeMap<String, ClusterHealth> {
    let mut by_cluster: BTreeMap<ClusterId, Vec<Coverage>> = BTreeMap::new();
    for row in rows {
        let cluster = row.origin.cluster.clone();
        by_cluster.entry(cluster).or_default().push(row);
    }
    let health = |(cluster, rows): (ClusterId, Vec<Coverage>)| {
        let presence = Presence::from_rows(rows);
        let nodes: BTreeSet<_> = presence.origins().map(|origin| &origin.node).collect();
        let health = ClusterHealth {
            nodes: nodes.len(),
            coverage: presence.coverage(),
        };
        (cluster.to_string(), health)
    };
    by_cluster.into_iter().map(health).collect()
}

#[cfg(test)]
mod tests {
    use echo_core::units::Nanos;

    use super::Backlog;

    fn at(seconds: i64) -> Nanos {
        Nanos::new(seconds * 1_000_000_000)
    }

    #[test]
    fn events_may_wait_for_the_detector_for_half_a_minute() {
        let mut backlog = Backlog::default();
        assert!(!backlog.is_behind((100, 90), at(0)));
        assert!(!backlog.is_behind((200, 95), at(30)));
        assert!(backlog.is_behind((300, 99), at(31)));
        assert!(!backlog.is_behind((400, 100), at(32)));
        assert!(!backlog.is_behind((500, 399), at(60)));
        assert!(backlog.is_behind((600, 399), at(63)));
    }
}
