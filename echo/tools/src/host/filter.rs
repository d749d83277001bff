//! Input of the tools about processes: cluster, node, rank, process id and window.

use std::collections::BTreeSet;

use echo_core::ids::{NodeId, Rank};
use echo_core::units::Nanos;
use echo_store::process_reports::{ProcessQuery, ProcessSeen};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quality::Presence;
use crate::schemas::{ClusterName, Name};
use crate::scope::{Scope, ScopeRequest};
use crate::time::{TimeArg, TimeRange, WindowArg};
use crate::{ToolError, names};

const DEFAULT_LIMIT: usize = 50;

/// Maximum number of processes that are compared.
pub(super) const MAX_PROCESSES: usize = 20_000;

/// Maximum number of names in an error.
const MAX_NAMED: usize = 8;

/// Filters; an absent filter matches every process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostFilter {
    /// Cluster name. Default: all clusters.
    #[schemars(with = "Option<ClusterName>")]
    pub cluster: Option<String>,
    /// Node name.
    #[schemars(with = "Option<Name>")]
    pub node: Option<String>,
    /// Rank within its job.
    #[schemars(range(max = 4_294_967_295_u32))]
    pub rank: Option<u32>,
    /// Process id.
    #[schemars(range(max = 4_294_967_295_u32))]
    pub pid: Option<u32>,
    /// Start, such as `now-15m`. Default: 1h before `to`.
    pub from: Option<TimeArg>,
    /// End, exclusive. Default: now.
    pub to: Option<TimeArg>,
    /// `all`, or a duration like `15m`.
    pub window: Option<WindowArg>,
    /// Maximum number of rows. Default: 50.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<usize>,
}

/// Reports that an answer is based on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Examined {
    /// Nodes that reported on processes.
    pub nodes: usize,
    /// Processes that they reported on.
    pub processes: usize,
    /// Those with a rank.
    pub processes_with_rank: usize,
    /// Time of the last report, RFC 3339; null without reports.
    pub last_report: Option<String>,
}

/// Processes that match a filter, and the query of their reports.
#[derive(Debug)]
pub(super) struct Selection {
    /// Query of the reports.
    pub(super) query: ProcessQuery,
    /// Processes that reported.
    pub(super) processes: Vec<ProcessSeen>,
    /// Caveats about the data, and what to do about them.
    pub(super) note: Option<String>,
}

impl HostFilter {
    /// Cluster and time range.
    pub(super) fn scope_request(&self) -> ScopeRequest {
        ScopeRequest {
            cluster: self.cluster.clone(),
            time: TimeRange {
                from: self.from,
                to: self.to,
                window: self.window,
            },
            page_window: None,
        }
    }

    /// Maximum number of rows.
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_LIMIT)
    }

    /// Finds the node of the filter; an error if it did not report.
    pub(super) fn node(&self, presence: &Presence) -> Result<Option<NodeId>, ToolError> {
        let node: Option<NodeId> = names::optional("node", self.node.as_deref())?;
        let nodes: BTreeSet<&NodeId> = presence.origins().map(|origin| &origin.node).collect();
        match node {
            Some(node) if !nodes.contains(&node) => Err(ToolError::UnknownNode {
                known: named(&nodes.iter().map(ToString::to_string).collect()),
                node: node.to_string(),
            }),
            node => Ok(node),
        }
    }

    /// Finds the processes; an error if the node, the rank or the process did not report.
    pub(super) async fn select(&self, scope: &Scope<'_>) -> Result<Selection, ToolError> {
        let presence = scope.presence().await?;
        let node = self.node(presence)?;
        let rank = self.rank.map(Rank::new);
        if let Some(rank) = rank
            && !presence.has_rank(rank)
        {
            return Err(ToolError::UnknownRank {
                rank: rank.value(),
                known: presence.describe_ranks(),
            });
        }
        let query = ProcessQuery {
            cluster: scope.cluster.clone(),
            node,
            rank,
            ..ProcessQuery::new(scope.window, MAX_PROCESSES)
        };
        let mut processes = scope.context.store.processes(query.clone()).await?;
        if let Some(pid) = self.pid {
            processes = with_pid(processes, pid)?;
        }
        Ok(Selection {
            note: note(scope, &processes).await?,
            processes,
            query: ProcessQuery {
                pid: self.pid,
                // One more shows whether rows are left out.
                limit: self.limit().saturating_add(1),
                ..query
            },
        })
    }
}

impl Selection {
    /// Counts what was examined.
    pub(super) fn examined(&self) -> Examined {
        let processes = self.processes.iter().map(|seen| &seen.process);
        let nodes: BTreeSet<_> = processes
            .clone()
            .map(|process| (&process.cluster, &process.node))
            .collect();
        let last: Option<Nanos> = self.processes.iter().map(|seen| seen.last).max();
        Examined {
            nodes: nodes.len(),
            processes: self.processes.len(),
            processes_with_rank: processes.filter(|process| process.rank.is_some()).count(),
            last_report: last.map(|last| last.to_string()),
        }
    }
}

impl Examined {
    /// Describes what was examined.
    pub(super) fn sentence(&self) -> String {
        let Self {
            nodes, processes, ..
        } = self;
        let nodes = counted(*nodes, "node", "nodes");
        let processes = counted(*processes, "process", "processes");
        let ranks = self.processes_with_rank;
        format!("{processes} on {nodes} reported, {ranks} with a rank")
    }
}

/// Formats a count with its noun.
pub(super) fn counted(n: usize, one: &str, several: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { several })
}

/// Cuts the extra row of a query. Returns whether there was one.
pub(super) fn cut<T>(rows: &mut Vec<T>, limit: usize) -> bool {
    let is_truncated = rows.len() > limit;
    rows.truncate(limit);
    is_truncated
}

fn with_pid(processes: Vec<ProcessSeen>, pid: u32) -> Result<Vec<ProcessSeen>, ToolError> {
    let known = processes.iter().map(|seen| &seen.process);
    let known = known.filter_map(|process| Some(format!("{} on {}", process.pid?, process.node)));
    let known = named(&known.collect());
    let mut found = processes;
    found.retain(|seen| seen.process.pid == Some(pid));
    if found.is_empty() {
        return Err(ToolError::UnknownProcess { pid, known });
    }
    Ok(found)
}

async fn note(scope: &Scope<'_>, processes: &[ProcessSeen]) -> Result<Option<String>, ToolError> {
    if !processes.is_empty() {
        return Ok(None);
    }
    let of_window = scope.quality().await?.note;
    let advice = "no agent reported on a process in this window; fleet.host.check lists what each node reports";
    let notes: Vec<String> = of_window.into_iter().chain([advice.to_owned()]).collect();
    Ok(Some(notes.join("; ")))
}

fn named(names: &BTreeSet<String>) -> String {
    let mut shown: Vec<&str> = names.iter().map(String::as_str).take(MAX_NAMED).collect();
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(", {more} more"),
    };
    if shown.is_empty() {
        shown.push("none");
    }
    format!("{}{more}", shown.join(", "))
}
