//! Life of CUDA and HIP graphs: captures, instantiations, updates, launches and destructions.

use std::collections::BTreeMap;

use echo_store::process_reports::{CallTotals, ProcessKey, ProcessQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::filter::{Examined, HostFilter, MAX_PROCESSES, cut};
use super::process::ProcessIdentity;
use super::trace_stats::per_second;
use crate::ToolError;
use crate::scope::{Scope, ScopeRequest};
use crate::time::AnswerWindow;
use crate::tool::Tool;

/// Instantiations from which they are compared with launches.
const MIN_INSTANTIATIONS: u64 = 5;

/// Launches per instantiation below which a graph is not reused.
const MIN_LAUNCHES_EACH: u64 = 2;

/// Graphs of processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct GraphLifecycle(pub HostFilter);

/// Life of graphs, per process.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Graphs {
    /// Requested cluster; null for all clusters.
    pub cluster: Option<String>,
    /// Window of event time that the answer covers.
    pub window: AnswerWindow,
    /// Processes that use graphs, most instantiations first.
    pub processes: Vec<ProcessGraphs>,
    /// True when there are more; raise `limit` or use a filter.
    pub truncated: bool,
    /// Reports that the answer is based on.
    pub examined: Examined,
    /// Caveats about the answer and what to do about them; null when there are none.
    pub note: Option<String>,
}

/// Graphs of one process.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ProcessGraphs {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessIdentity,
    /// Number of calls.
    pub calls: GraphCalls,
    /// Calls per second; null if the time is unknown.
    pub calls_per_s: Option<GraphRates>,
    /// Time in instantiations, milliseconds.
    pub instantiation_ms: f64,
    /// Note on graphs that are not reused; null otherwise.
    pub note: Option<String>,
}

/// Number of calls by step of the life of a graph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GraphCalls {
    /// Captures of a stream.
    pub captures: u64,
    /// Instantiations of an executable graph.
    pub instantiations: u64,
    /// Updates of an executable graph.
    pub updates: u64,
    /// Launches.
    pub launches: u64,
    /// Destructions of graphs and executable graphs.
    pub destroys: u64,
}

/// Calls per second by step of the life of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct GraphRates {
    /// Captures of a stream.
    pub captures_per_s: f64,
    /// Instantiations of an executable graph.
    pub instantiations_per_s: f64,
    /// Updates of an executable graph.
    pub updates_per_s: f64,
    /// Launches.
    pub launches_per_s: f64,
    /// Destructions.
    pub destroys_per_s: f64,
}

/// Step of the life of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Capture,
    Instantiate,
    Update,
    Launch,
    Destroy,
}

/// Functions by their names without the prefix of the library and without version suffixes.
const STEPS: [(&str, Step); 6] = [
    ("StreamBeginCapture", Step::Capture),
    ("GraphInstantiate", Step::Instantiate),
    ("GraphExecUpdate", Step::Update),
    ("GraphLaunch", Step::Launch),
    ("GraphExecDestroy", Step::Destroy),
    ("GraphDestroy", Step::Destroy),
];

/// Prefixes of the libraries, the longest first.
const LIBRARIES: [&str; 3] = ["cuda", "hip", "cu"];

impl Tool for GraphLifecycle {
    const NAME: &'static str = "fleet.host.graph_lifecycle";
    const TITLE: &'static str = "Graph lifecycle";
    const DESCRIPTION: &'static str = "CUDA and HIP graphs per process: captures, instantiations, updates, launches; whether graphs are reused.";
    type Answer = Graphs;

    fn scope_request(&self) -> ScopeRequest {
        self.0.scope_request()
    }

    async fn call(self, scope: &Scope<'_>) -> Result<Graphs, ToolError> {
        let selection = self.0.select(scope).await?;
        let query = ProcessQuery {
            only_graphs: true,
            limit: MAX_PROCESSES,
            ..selection.query.clone()
        };
        let totals = scope.context.store.call_totals(query).await?;
        let mut processes = by_process(totals);
        let truncated = cut(&mut processes, self.0.limit());
        let no_graphs = processes.is_empty() && selection.note.is_none();
        let advice = "no process captured, instantiated or launched a graph";
        Ok(Graphs {
            cluster: scope.cluster.as_ref().map(ToString::to_string),
            window: scope.window.into(),
            processes,
            truncated,
            examined: selection.examined(),
            note: no_graphs.then(|| advice.to_owned()).or(selection.note),
        })
    }
}

/// Adds up the calls of each process, most instantiations first.
fn by_process(totals: Vec<CallTotals>) -> Vec<ProcessGraphs> {
    let mut found: BTreeMap<ProcessKey, (GraphCalls, f64, i64)> = BTreeMap::new();
    for total in totals {
        let Some(step) = step(&total.function) else {
            continue;
        };
        let (calls, instantiation_ms, nanos) = found.entry(total.process).or_default();
        calls.add(step, total.n_calls);
        *nanos = total.covered_nanos.max(*nanos);
        if step == Step::Instantiate {
            *instantiation_ms += total.total_ms;
        }
    }
    let mut rows: Vec<ProcessGraphs> = found
        .into_iter()
        .map(
            |(process, (calls, instantiation_ms, nanos))| ProcessGraphs {
                process: process.into(),
                calls,
                calls_per_s: calls.per_second(nanos),
                instantiation_ms,
                note: calls.note(),
            },
        )
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.calls.instantiations, row.calls.launches)));
    rows
}

/// Returns the step of a function such as `cudaGraphLaunch` or `cuGraphInstantiate_v2`.
fn step(function: &str) -> Option<Step> {
    let name = LIBRARIES
        .iter()
        .find_map(|library| function.strip_prefix(library))?;
    let starts_with = |(start, _): &&(&str, Step)| name.starts_with(start);
    STEPS.iter().find(starts_with).map(|(_, step)| *step)
}

impl GraphCalls {
    const fn add(&mut self, step: Step, calls: u64) {
        let count = match step {
            Step::Capture => &mut self.captures,
            Step::Instantiate => &mut self.instantiations,
            Step::Update => &mut self.updates,
            Step::Launch => &mut self.launches,
            Step::Destroy => &mut self.destroys,
        };
        *count = count.saturating_add(calls);
    }

    fn per_second(self, nanos: i64) -> Option<GraphRates> {
        Some(GraphRates {
            captures_per_s: per_second(self.captures, nanos)?,
            instantiations_per_s: per_second(self.instantiations, nanos)?,
            updates_per_s: per_second(self.updates, nanos)?,
            launches_per_s: per_second(self.launches, nanos)?,
            destroys_per_s: per_second(self.destroys, nanos)?,
        })
    }

    fn note(self) -> Option<String> {
        let is_reused = self.launches >= self.instantiations.saturating_mul(MIN_LAUNCHES_EACH);
        (self.instantiations >= MIN_INSTANTIATIONS && !is_reused).then(|| {
            format!(
                "graphs are not reused: {} instantiations for {} launches; keep one executable graph per input shape, \
                 pad inputs to few shapes, or update the executable graph",
                self.instantiations, self.launches
            )
        })
    }
}
