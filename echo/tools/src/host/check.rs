//! Which nodes report what: last reports, processes, losses, and agents without kernel evidence.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::{ClusterId, NodeId, Rank, RankInJob};
use echo_core::units::Nanos;
use echo_store::process_reports::{NodeReport, ProcessQuery, ProcessSeen};
use fleet_proto::metric;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::filter::{HostFilter, MAX_PROCESSES, counted, cut};
use crate::ToolError;
use crate::scope::{Scope, ScopeRequest};
use crate::time::AnswerWindow;
use crate::tool::Tool;

/// Age of the last report, in seconds, from which a node counts as silent.
const SILENT_AFTER_S: f64 = 60.0;

/// Evidence that only probes in the kernel yield.
const KERNEL_EVIDENCE: [&str; 4] = [
    metric::OFF_CPU,
    metric::RUN_QUEUE,
    metric::PREEMPTED,
    metric::PREEMPTIONS,
];

/// Amounts that agents lost, and what to do.
const LOSSES: [(&str, &str); 6] = [
    (metric::EVENTS_LOST, "raise the size of the agent's ring"),
    (metric::EVIDENCE_LOST, "a map of the agent's probes is full"),
    (
        metric::POINTS_DROPPED,
        "the log of the agent has the reason",
    ),
    (metric::UNKNOWN_COMM_OPS, "start the agent before the job"),
    (
        metric::BROKEN_BLOCKS,
        "blocks that were observed incompletely are left out",
    ),
    (
        metric::GPU_OPERATIONS_LOST,
        "ranks are compared without these operations; fleet_agent_gpu_operations_lost_total has the reason",
    ),
];

/// Nodes and what they report; the rank and the process id select nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct HostCheck(pub HostFilter);

/// What each node reports.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Checked {
    /// Requested cluster; null for all clusters.
    pub cluster: Option<String>,
    /// Window of event time that the answer covers.
    pub window: AnswerWindow,
    /// Number of nodes, and of those with findings, in one sentence.
    pub summary: String,
    /// Nodes, those with findings first.
    pub nodes: Vec<NodeCheck>,
    /// True when there are more; raise `limit` or use a filter.
    pub truncated: bool,
    /// Caveats about the answer and what to do about them; null when there are none.
    pub note: Option<String>,
}

/// What one node reports.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NodeCheck {
    /// Cluster.
    pub cluster: String,
    /// Node name.
    pub node_id: String,
    /// Time of its last report, RFC 3339.
    pub last_report: String,
    /// Seconds between the last report and the end of the window.
    pub last_report_age_s: f64,
    /// Ranks that reported on the node.
    pub ranks: usize,
    /// Processes with a rank whose calls, chains or stacks it reported.
    pub processes_with_rank: usize,
    /// Processes without a rank.
    pub processes_without_rank: usize,
    /// True when it reports time off the CPU and preemptions; null for a node without ranks.
    pub has_kernel_evidence: Option<bool>,
    /// Time of the last report on calls, RFC 3339; null without any.
    pub last_calls: Option<String>,
    /// Time of the last causal chain, RFC 3339; null without any.
    pub last_chain: Option<String>,
    /// Time of the last stack samples, RFC 3339; null without any.
    pub last_stacks: Option<String>,
    /// Amounts that the agent lost in the window; only those above 0.
    pub losses: Vec<Loss>,
    /// What is missing or wrong, with advice.
    pub findings: Vec<String>,
}

/// Amount that an agent lost.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Loss {
    /// Metric of the agent.
    pub metric: String,
    /// Amount in the window.
    pub total: f64,
}

impl Tool for HostCheck {
    const NAME: &'static str = "fleet.host.check";
    const TITLE: &'static str = "Host check";
    const DESCRIPTION: &'static str = "What each node reports: last reports, processes, losses, missing kernel evidence, and advice.";
    type Answer = Checked;

    fn scope_request(&self) -> ScopeRequest {
        self.0.scope_request()
    }

    async fn call(self, scope: &Scope<'_>) -> Result<Checked, ToolError> {
        let presence = scope.presence().await?;
        let selection = self.0.select(scope).await?;
        let store = &scope.context.store;
        let reports = store
            .node_reports(scope.cluster.as_ref(), scope.window, None)
            .await?;
        let everything = ProcessQuery {
            cluster: scope.cluster.clone(),
            ..ProcessQuery::new(scope.window, MAX_PROCESSES)
        };
        let processes = store.processes(everything).await?;
        let end = scope.window.to().min(scope.context.clock.now());
        let mut nodes: BTreeMap<NodeKey<'_>, Reported<'_>> = BTreeMap::new();
        for (origin, last) in presence.last_events() {
            let node = nodes.entry((&origin.cluster, &origin.node)).or_default();
            node.last = node.last.max(Some(last));
            node.ranks.extend(origin.rank.map(RankInJob::rank));
        }
        for report in &reports {
            let node = nodes.entry((&report.cluster, &report.node)).or_default();
            node.last = node.last.max(Some(report.last));
            node.reports.insert(report.metric.as_str(), report);
        }
        for process in &processes {
            let key = (&process.process.cluster, &process.process.node);
            nodes.entry(key).or_default().processes.push(process);
        }
        let matches = |reported: &Reported<'_>| self.matches(reported);
        let node = selection.query.node.as_ref();
        let mut nodes: Vec<NodeCheck> = nodes
            .into_iter()
            .filter(|((_, name), reported)| {
                node.is_none_or(|node| node == *name) && matches(reported)
            })
            .map(|(key, reported)| reported.check(key, end))
            .collect();
        nodes.sort_by_key(|node| node.findings.is_empty());
        let summary = summarize(&nodes);
        Ok(Checked {
            cluster: scope.cluster.as_ref().map(ToString::to_string),
            window: scope.window.into(),
            summary,
            truncated: cut(&mut nodes, self.0.limit()),
            nodes,
            note: scope.quality().await?.note,
        })
    }

    fn headline(answer: &Checked) -> Option<String> {
        Some(answer.summary.clone())
    }
}

impl HostCheck {
    fn matches(&self, reported: &Reported<'_>) -> bool {
        let has_rank = |rank| reported.ranks.contains(&Rank::new(rank));
        let has_pid = |pid| {
            let mut processes = reported.processes.iter();
            processes.any(|seen| seen.process.pid == Some(pid))
        };
        self.0.rank.is_none_or(has_rank) && self.0.pid.is_none_or(has_pid)
    }
}

type NodeKey<'a> = (&'a ClusterId, &'a NodeId);

/// Reports of one node.
#[derive(Debug, Default)]
struct Reported<'a> {
    last: Option<Nanos>,
    ranks: BTreeSet<Rank>,
    reports: BTreeMap<&'a str, &'a NodeReport>,
    processes: Vec<&'a ProcessSeen>,
}

impl Reported<'_> {
    fn check(&self, (cluster, node): NodeKey<'_>, end: Nanos) -> NodeCheck {
        let with_rank = self.processes.iter();
        let with_rank = with_rank.filter(|seen| seen.process.rank.is_some()).count();
        let last_of = |name| self.reports.get(name).map(|report| report.last.to_string());
        let last = self.last.unwrap_or(end);
        let has_kernel_evidence = KERNEL_EVIDENCE
            .iter()
            .any(|name| self.reports.contains_key(name));
        let mut check = NodeCheck {
            cluster: cluster.to_string(),
            node_id: node.to_string(),
            last_report: last.to_string(),
            last_report_age_s: (end.millis_since(last) / 1e3).max(0.0),
            ranks: self.ranks.len(),
            processes_with_rank: with_rank,
            processes_without_rank: self.processes.len() - with_rank,
            has_kernel_evidence: (!self.ranks.is_empty()).then_some(has_kernel_evidence),
            last_calls: last_of(metric::CALLS),
            last_chain: last_of(metric::CHAIN),
            last_stacks: last_of(metric::STACK_SAMPLES),
            losses: self.losses(),
            findings: Vec::new(),
        };
        check.findings = check.find();
        check
    }

    fn losses(&self) -> Vec<Loss> {
        let reports = LOSSES.iter().filter_map(|(name, _)| self.reports.get(name));
        reports
            .filter(|report| report.total > 0.0)
            .map(|report| Loss {
                metric: report.metric.to_string(),
                total: report.total,
            })
            .collect()
    }
}

impl NodeCheck {
    fn find(&self) -> Vec<String> {
        let mut findings = Vec::new();
        if self.last_report_age_s > SILENT_AFTER_S {
            let age = self.last_report_age_s;
            findings.push(format!(
                "no report in the last {age:.0} s of the window: check that fleet-agent runs on the node"
            ));
        }
        if self.has_kernel_evidence == Some(false) {
            let missing =
                "no time off the CPU and no preemptions: run fleet-agent check on the node as root";
            findings.push(missing.to_owned());
        }
        if self.processes_with_rank + self.processes_without_rank == 0 {
            let missing =
                "no calls, causal chains or stacks of processes: run fleet-agent check on the node";
            findings.push(missing.to_owned());
        }
        for loss in &self.losses {
            let advice = LOSSES.iter().find(|(name, _)| *name == loss.metric);
            let advice = advice.map_or("", |(_, advice)| *advice);
            findings.push(format!("{} {}: {advice}", loss.metric, loss.total));
        }
        findings
    }
}

fn summarize(nodes: &[NodeCheck]) -> String {
    let with_findings = nodes.iter().filter(|node| !node.findings.is_empty());
    let with_findings = with_findings.count();
    let reporting = counted(nodes.len(), "node reports", "nodes report");
    match nodes
        .first()
        .and_then(|node| Some((node, node.findings.first()?)))
    {
        Some((node, finding)) => {
            format!(
                "{reporting}, {with_findings} with findings. {}: {finding}",
                node.node_id
            )
        }
        None => format!("{reporting}, none with findings"),
    }
}
