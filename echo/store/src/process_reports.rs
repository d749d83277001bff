//! Reports of agents on single processes: durations of calls, causal chains and stack samples
//! (metrics named `fleet.process.*`), and what each node reports at all.

use async_trait::async_trait;
use echo_core::ids::{ClusterId, JobId, MetricName, NodeId, Rank};
use echo_core::units::{Nanos, Window};

use crate::StoreError;

/// Pause after which a causal chain that returns counts as new, nanoseconds. Agents report every
/// ten seconds while a chain holds.
pub const MAX_CHAIN_PAUSE_NANOS: i64 = 60_000_000_000;

/// Queries of reports on processes.
#[async_trait]
pub trait ProcessReports: Send + Sync {
    /// Processes that reported, in order of cluster, node, rank and process id.
    async fn processes(&self, _query: ProcessQuery) -> Result<Vec<ProcessSeen>, StoreError> {
        Err(StoreError::Closed)
    }

    /// Calls per process and function, most time first.
    async fn call_totals(&self, _query: ProcessQuery) -> Result<Vec<CallTotals>, StoreError> {
        Err(StoreError::Closed)
    }

    /// Latest state of each causal chain, one per process and cause, most severe first.
    async fn chains(&self, _query: ProcessQuery) -> Result<Vec<ChainState>, StoreError> {
        Err(StoreError::Closed)
    }

    /// Stack samples per process, function and stack, most samples first.
    async fn stack_totals(&self, _query: ProcessQuery) -> Result<Vec<StackTotals>, StoreError> {
        Err(StoreError::Closed)
    }

    /// Parts of the files that agents made about processes, in order of time, process, file and part.
    async fn file_parts(&self, _query: ProcessQuery) -> Result<Vec<FilePart>, StoreError> {
        Err(StoreError::Closed)
    }

    /// Reports per node and metric, of metrics that agents send about a host, a process or
    /// themselves, or of one of these metrics, in order of cluster, node and metric.
    async fn node_reports(
        &self,
        _cluster: Option<&ClusterId>,
        _window: Window,
        _metric: Option<&'static str>,
    ) -> Result<Vec<NodeReport>, StoreError> {
        Err(StoreError::Closed)
    }
}

/// Filters of reports on processes; an absent filter matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessQuery {
    /// Event time.
    pub window: Window,
    /// Cluster.
    pub cluster: Option<ClusterId>,
    /// Node.
    pub node: Option<NodeId>,
    /// Job.
    pub job: Option<JobId>,
    /// Rank within the job.
    pub rank: Option<Rank>,
    /// Process id.
    pub pid: Option<u32>,
    /// True to return only calls of CUDA and HIP graphs and of their capture.
    pub only_graphs: bool,
    /// Largest number of rows.
    pub limit: usize,
}

impl ProcessQuery {
    /// Query of everything in a window, up to `limit` rows.
    pub const fn new(window: Window, limit: usize) -> Self {
        Self {
            window,
            cluster: None,
            node: None,
            job: None,
            rank: None,
            pid: None,
            only_graphs: false,
            limit,
        }
    }
}

/// Process on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessKey {
    /// Cluster.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Job; `None` if the process belongs to none.
    pub job: Option<JobId>,
    /// Rank within the job; `None` for a process without a rank.
    pub rank: Option<Rank>,
    /// Process id.
    pub pid: Option<u32>,
    /// Name.
    pub name: Option<String>,
}

/// Process that reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSeen {
    /// The process.
    pub process: ProcessKey,
    /// Beginning of its first report.
    pub first: Nanos,
    /// End of its last report.
    pub last: Nanos,
}

/// Calls of one function by one process, merged over the window.
#[derive(Debug, Clone, PartialEq)]
pub struct CallTotals {
    /// The process.
    pub process: ProcessKey,
    /// Function.
    pub function: String,
    /// Number of calls.
    pub n_calls: u64,
    /// Time in these calls, milliseconds.
    pub total_ms: f64,
    /// Longest call, milliseconds.
    pub max_ms: Option<f64>,
    /// Median duration, within a ninth, milliseconds.
    pub p50_ms: Option<f64>,
    /// 95th percentile of the durations, within a ninth, milliseconds.
    pub p95_ms: Option<f64>,
    /// 99th percentile of the durations, within a ninth, milliseconds.
    pub p99_ms: Option<f64>,
    /// Largest 99th percentile of a period, milliseconds.
    pub worst_p99_ms: Option<f64>,
    /// Bytes moved or allocated; `None` where the function has none.
    pub bytes: Option<u64>,
    /// Time from the beginning of the first to the end of the last report on calls of the process,
    /// nanoseconds.
    pub covered_nanos: i64,
}

/// Causal chain of a process in its latest reported state.
#[derive(Debug, Clone, PartialEq)]
pub struct ChainState {
    /// The process.
    pub process: ProcessKey,
    /// Cause.
    pub cause: String,
    /// Severity: `low`, `medium` or `high`.
    pub severity: Option<String>,
    /// Share of its time that the process lost to the cause, 0 to 1.
    pub share: Option<f64>,
    /// Largest share in the window.
    pub max_share: Option<f64>,
    /// The chain in one sentence.
    pub summary: Option<String>,
    /// Links from the system to the call, one per line.
    pub links: Option<String>,
    /// Stack in which the process waited, innermost frame first, one per line.
    pub stack: Option<String>,
    /// Advice, one per line.
    pub advice: Option<String>,
    /// Time since which it has been reported without a pause of [`MAX_CHAIN_PAUSE_NANOS`].
    pub since: Nanos,
    /// Time of the last report.
    pub last: Nanos,
}

/// Samples of one stack of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackTotals {
    /// The process.
    pub process: ProcessKey,
    /// Function of a GPU library in which they were taken; `None` outside of such calls.
    pub function: Option<String>,
    /// Stack, innermost frame first, one per line.
    pub stack: String,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples of all stacks of the process.
    pub process_samples: u64,
}

/// Part of a file that an agent made about a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    /// The process.
    pub process: ProcessKey,
    /// Time at which the file was made.
    pub at: Nanos,
    /// Name of the file, as the agent sent it.
    pub name: String,
    /// Number of the part, from 0.
    pub part: u32,
    /// Number of parts.
    pub parts: u32,
    /// Base64 of the part of the file after compression by gzip.
    pub content: String,
}

/// Reports of one metric by one node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeReport {
    /// Cluster.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Metric.
    pub metric: MetricName,
    /// Sum of the values, in the unit of the metric.
    pub total: f64,
    /// Time of the last report.
    pub last: Nanos,
}
