//! Batches of points and verdicts of one host, sent and acknowledged as a unit.

use crate::explain::ProcessReport;
use crate::signal::Point;
use crate::verdict::SelfVerdict;

/// Points of one host, sent and acknowledged as a unit. Times are Unix nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Number within the agent instance, from 1; a retry keeps it.
    pub number: u64,
    /// Points by process.
    pub resources: Vec<ResourcePoints>,
    /// What processes lost time to.
    pub reports: Vec<ResourceReport>,
    /// Counters of the agent itself, if any.
    pub agent_counters: Option<AgentCounters>,
}

/// Increases of an agent's own counters over a period. Times are Unix nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCounters {
    /// Cluster.
    pub cluster: String,
    /// Host.
    pub node: String,
    /// Start of the period.
    pub start_ns: u64,
    /// End of the period.
    pub time_ns: u64,
    /// Metric names and their increases.
    pub counts: Vec<(&'static str, u64)>,
}

impl AgentCounters {
    /// Adds the period that follows.
    pub(crate) fn extend(&mut self, next: Self) {
        self.time_ns = next.time_ns;
        for (name, rise) in next.counts {
            match self.counts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(rise),
                None => self.counts.push((name, rise)),
            }
        }
    }
}

impl Batch {
    /// Number of points.
    pub fn n_points(&self) -> usize {
        let of_processes = self.resources.iter().map(|resource| resource.points.len());
        let of_agent = self
            .agent_counters
            .as_ref()
            .map_or(0, |agent| agent.counts.len());
        let of_reports = self.reports.iter().map(|own| own.report.n_points());
        of_processes.sum::<usize>() + of_reports.sum::<usize>() + of_agent
    }
}

/// Self-verdicts of one host's processes, sent and acknowledged as a unit. Times are Unix
/// nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictBatch {
    /// Number within the agent instance, from the same sequence as those of [`Batch`].
    pub number: u64,
    /// Verdicts by process.
    pub resources: Vec<ResourceVerdicts>,
}

impl VerdictBatch {
    /// Number of verdicts.
    pub fn n_verdicts(&self) -> usize {
        let counts = self.resources.iter().map(|own| own.verdicts.len());
        counts.sum()
    }
}

/// Self-verdicts of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceVerdicts {
    /// The process.
    pub resource: Resource,
    /// Verdicts in order of time.
    pub verdicts: Vec<SelfVerdict>,
}

/// Points of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourcePoints {
    /// The process.
    pub resource: Resource,
    /// Points.
    pub points: Vec<Point>,
}

/// What one process lost time to in one period. Times are Unix nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceReport {
    /// The process.
    pub resource: Resource,
    /// Name of its program, if known: that of its executable, or of the script that an interpreter runs.
    pub program: Option<String>,
    /// The report.
    pub report: ProcessReport,
}

/// Identity of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Cluster.
    pub cluster: String,
    /// Host.
    pub node: String,
    /// Job, if known.
    pub job: Option<String>,
    /// Model of its GPU, if known.
    pub gpu_model: Option<String>,
    /// UUID of its GPU, if known.
    pub gpu_uuid: Option<String>,
    /// Kubernetes pod, if it runs in one.
    pub pod: Option<String>,
    /// Namespace of the pod, if known.
    pub namespace: Option<String>,
    /// Rank within the job; `None` for a process without a rank.
    pub rank: Option<u32>,
    /// Number of ranks of the job; `None` for a process without a rank.
    pub world_size: Option<u32>,
    /// Process id.
    pub pid: u32,
}
