//! What is sent of one host and acknowledged together: points, verdicts, and whose they are.

use crate::signal::Point;
use crate::verdict::SelfVerdict;

/// Points of one host, sent and acknowledged together. Times are Unix nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Number within the agent instance, from 1; kept when the batch is sent again.
    pub number: u64,
    /// The points, by process.
    pub resources: Vec<ResourcePoints>,
    /// What the agent has to say of itself, if anything.
    pub agent_counters: Option<AgentCounters>,
}

/// How counts of an agent itself rose over some time. Times are Unix nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCounters {
    /// Its cluster.
    pub cluster: String,
    /// Its host.
    pub node: String,
    /// Beginning of that time.
    pub start_ns: u64,
    /// End of that time.
    pub time_ns: u64,
    /// Names of metrics, and what each rose by.
    pub counts: Vec<(&'static str, u64)>,
}

impl Batch {
    /// Number of points.
    pub fn n_points(&self) -> usize {
        let of_processes = self.resources.iter().map(|resource| resource.points.len());
        let of_agent = self
            .agent_counters
            .as_ref()
            .map_or(0, |agent| agent.counts.len());
        of_processes.sum::<usize>() + of_agent
    }
}

/// What processes of one host hold of themselves, sent and acknowledged together. Times are Unix nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictBatch {
    /// Number within the agent instance, out of the same count as those of [`Batch`].
    pub number: u64,
    /// The verdicts, by process.
    pub resources: Vec<ResourceVerdicts>,
}

impl VerdictBatch {
    /// Number of verdicts.
    pub fn n_verdicts(&self) -> usize {
        let counts = self.resources.iter().map(|own| own.verdicts.len());
        counts.sum()
    }
}

/// What one process holds of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceVerdicts {
    /// The process.
    pub resource: Resource,
    /// Its verdicts, in the order in which it came to them.
    pub verdicts: Vec<SelfVerdict>,
}

/// Points of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourcePoints {
    /// The process.
    pub resource: Resource,
    /// Its points.
    pub points: Vec<Point>,
}

/// Identity of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Its cluster.
    pub cluster: String,
    /// Its host.
    pub node: String,
    /// Its job, when known.
    pub job: Option<String>,
    /// Model of its GPU, when known.
    pub gpu_model: Option<String>,
    /// Unique identity of its GPU, when known.
    pub gpu_uuid: Option<String>,
    /// Its Kubernetes pod, when it runs in one.
    pub pod: Option<String>,
    /// The pod's namespace, when known.
    pub namespace: Option<String>,
    /// Its rank within the job.
    pub rank: u32,
    /// Ranks of the job.
    pub world_size: u32,
    /// Process id.
    pub pid: u32,
}
