//! Storage of events and detector output behind one trait.
//!
//! Only `store::duckdb` opens the database and writes SQL for its tables; the lake has an engine of its own, and
//! statements of users are checked by `echo-sql-guard`. Windows, names and limits are validated by the caller.

mod activity;
pub mod duckdb;
pub mod hours;
pub mod incident_history;
pub mod limits;
pub mod process_reports;
pub mod readiness;
pub mod resume;
pub mod timeseries;

#[cfg(test)]
mod contract;
mod failure;
mod finite;
mod reporting;
pub mod sql;
pub mod timings;
mod vitals;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use echo_core::ids::{ClusterId, CommId, JobId, MetricName, NodeId, Op, Rank, RoleId};
use echo_core::model::cost::ReportSpan;
use echo_core::model::detector_output::{DetectorOutput, Incident, LostTime};
use echo_core::model::event::{Event, EventBatch, Origin, SeqRange, Source, StoredEvent};
use fleet_proto::metric;
use tokio::sync::watch;

pub use crate::activity::Activity;
pub use crate::failure::StoreError;
use crate::hours::CostHours;
use crate::incident_history::IncidentHistory;
use crate::process_reports::ProcessReports;
use crate::readiness::NotReadyReason;
use crate::resume::{Resume, WarmUp};
use crate::sql::{SqlError, SqlQuery, SqlTable, ViewDocs};
use crate::timeseries::{TimeseriesPoint, TimeseriesQuery};
pub use crate::vitals::{ExceededLimit, Vitals};
use echo_core::units::{Nanos, Window};

/// Database of events and detector output. Shared as `Arc<dyn EventStore>`.
#[async_trait]
pub trait EventStore: CostHours + IncidentHistory + ProcessReports + std::fmt::Debug {
    /// Stores the batch durably, or reports that a batch with the same key was stored before. The
    /// events of a batch get consecutive numbers in their order, all above every event committed
    /// earlier.
    async fn append(&self, batch: EventBatch) -> Result<Appended, StoreError>;

    /// Indexes of events that must not be appended because their series, origin or cluster is new
    /// and would exceed an entry limit. Events without new entries never exceed one. `token` is the
    /// name of the token that sent the events: one token may add at most as many entries as remain
    /// free for others. Concurrent requests share the free capacity.
    fn over_entry_limits(
        &self,
        _events: &[Event],
        _token: Option<&str>,
    ) -> Vec<(usize, ExceededLimit)> {
        Vec::new()
    }

    /// Returns one page of events, newest first.
    async fn events(&self, query: EventQuery) -> Result<Page, StoreError>;

    /// Returns up to `limit` events of the given metrics with a number above `after`, in order of
    /// their numbers, without attributes (replaced by an empty object). Waits
    /// (`nccl.collective.wait_ms`) are returned only if a GPU measured them, because the detector
    /// ignores host waits. Only they come with samples, because nothing else is judged by single
    /// operations.
    async fn tail(
        &self,
        after: u64,
        metrics: &[MetricName],
        limit: usize,
    ) -> Result<Tail, StoreError>;

    /// Stores detector output durably, all or nothing.
    async fn store_verdicts(&self, output: DetectorOutput) -> Result<(), StoreError>;

    /// Returns the point at which a detector resumes after a restart and the state it needs:
    /// `warm_up` limits the events before that point that it reads again; the last policy of each
    /// cluster is included, in order of cluster name.
    async fn resume(&self, warm_up: WarmUp) -> Result<Resume, StoreError>;

    /// Incidents of the cluster (of all clusters if `None`) that were open at any time in the
    /// window, oldest first, in their latest state. An open incident counts as open after it was
    /// last seen, too; a cleared one until it was cleared.
    async fn incidents(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<Incident>, StoreError>;

    /// Lost GPU time whose interval begins in the window, oldest first.
    async fn lost_time(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<LostTime>, StoreError>;

    /// Reporters in the window: one row per job, node and rank (or node without rank), in order of
    /// their origins. If a rank reported different origins, the row has the latest.
    async fn coverage(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<Coverage>, StoreError>;

    /// Sum of each kind of host evidence (metrics named `fleet.host.*`) per rank of the cohort of a
    /// rank, over the operations of its own blocks, in order of ranks and kinds: a list for each query, in
    /// their order. Points without a block are left out.
    async fn host_evidence(
        &self,
        queries: Vec<EvidenceQuery>,
    ) -> Result<Vec<Vec<EvidenceSum>>, StoreError>;

    /// Operations of each rank in each communicator that GPUs measure, except sends and receives, in no
    /// particular order.
    async fn timed_operations(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<TimedOperations>, StoreError>;

    /// Events of a job that belong to blocks, in order of their numbers, without attributes, with
    /// samples as in [`Self::tail`]. If there are more than the limit, the latest are returned.
    async fn job_events(&self, query: JobQuery) -> Result<Vec<StoredEvent>, StoreError>;

    /// Sums of histogram signals per rank, communicator, operation and time bucket, in no
    /// particular order. All reports of a block fall into the same bucket. A rank that reported
    /// different origins has several sums. Waits are included only if a GPU measured them, as in
    /// [`Self::tail`].
    async fn timeseries(&self, query: TimeseriesQuery) -> Result<Vec<TimeseriesPoint>, StoreError>;

    /// Clusters that have sent events, including those whose events were all deleted within the
    /// last hours.
    async fn clusters(&self) -> Result<BTreeSet<ClusterId>, StoreError>;

    /// Event times of the first and last event; `None` if there are no events.
    async fn extent(
        &self,
        cluster: Option<&ClusterId>,
    ) -> Result<Option<(Nanos, Nanos)>, StoreError>;

    /// Amounts that the store holds and queues; `None` values where there is no limit.
    fn vitals(&self) -> Vitals {
        Vitals::default()
    }

    /// Reasons why the store accepts no events, most severe first; empty if it accepts them.
    fn not_ready_reasons(&self) -> Vec<NotReadyReason> {
        Vec::new()
    }

    /// Received time up to which retention has deleted events; `None` if it has deleted none.
    async fn dropped_until(&self) -> Result<Option<Nanos>, StoreError> {
        Ok(None)
    }

    /// Runs SQL that only reads the published views. Dropping the future stops the statement.
    async fn run_sql(&self, _query: SqlQuery) -> Result<SqlTable, SqlError> {
        Err(StoreError::Closed.into())
    }

    /// The published views, most used first.
    async fn views(&self) -> Result<Vec<ViewDocs>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns whether what is received is copied to a lake, from which a server with `--read-only`
    /// answers over all instances and times.
    fn is_copied(&self) -> bool {
        false
    }

    /// Returns whether the cluster has sent events, as [`Self::clusters`] does.
    async fn has_cluster(&self, cluster: &ClusterId) -> Result<bool, StoreError> {
        Ok(self.clusters().await?.contains(cluster))
    }

    /// Number of the last committed event; changes wake readers that follow with [`Self::tail`].
    fn committed(&self) -> watch::Receiver<u64>;
}

/// Outcome of appending a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// Its events are stored durably.
    Stored {
        /// Number of events.
        events: usize,
    },
    /// A batch with the same key was stored before; nothing was added.
    Duplicate,
}

/// Filters of [`EventStore::events`]; an absent filter matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Event time.
    pub window: Window,
    /// Cluster.
    pub cluster: Option<ClusterId>,
    /// Node.
    pub node: Option<NodeId>,
    /// Rank within the job.
    pub rank: Option<Rank>,
    /// Operation.
    pub op: Option<Op>,
    /// Metric.
    pub metric: Option<MetricName>,
    /// Largest number of events on the page.
    pub limit: usize,
    /// End of the previous page.
    pub cursor: Option<Cursor>,
}

/// End of a page: the next page begins with the event before this one in (timestamp, number) order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Event time of the last event on the page.
    pub timestamp: Nanos,
    /// Number of that event.
    pub id: u64,
}

impl Cursor {
    /// The cursor for the page after `last`.
    pub const fn after(last: &StoredEvent) -> Self {
        Self {
            timestamp: last.event.timestamp,
            id: last.id,
        }
    }
}

/// One page of events.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The events, newest first.
    pub events: Vec<StoredEvent>,
    /// Cursor for the next page; `None` on the last page.
    pub next: Option<Cursor>,
}

/// Events in the order of their numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Tail {
    /// Matching events.
    pub events: Vec<StoredEvent>,
    /// Number up to which all events were examined.
    pub until: u64,
}

/// Reports of one rank, or of one node without rank, in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// Origin.
    pub origin: Arc<Origin>,
    /// First event time.
    pub first: Nanos,
    /// Last event time.
    pub last: Nanos,
    /// True if it reported host evidence (metrics named `fleet.host.*`).
    pub has_host_evidence: bool,
    /// What it did last.
    pub activity: Activity,
}

impl From<&Coverage> for ReportSpan {
    fn from(coverage: &Coverage) -> Self {
        Self {
            origin: Arc::clone(&coverage.origin),
            first: coverage.first,
            last: coverage.last,
        }
    }
}

/// Filters of [`EventStore::host_evidence`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceQuery {
    /// Cluster.
    pub cluster: ClusterId,
    /// Job; `None` selects events without a job.
    pub job: Option<JobId>,
    /// Rank whose operations are compared with those of its cohort.
    pub rank: Rank,
    /// Event time of its blocks, on its own clock.
    pub span: Window,
    /// Event time of all blocks, on the senders' clocks.
    pub window: Window,
}

/// Host evidence of one kind and rank.
#[derive(Debug, Clone, PartialEq)]
pub struct EvidenceSum {
    /// Rank within the job.
    pub rank: Rank,
    /// Kind of evidence.
    pub metric: MetricName,
    /// Task of [`fleet_proto::metric::PREEMPTED_BY`] or [`fleet_proto::metric::GPU_SHARED_BY`]; `None` for
    /// other kinds.
    pub task: Option<EvidenceTask>,
    /// Sum of the values, in the unit of the metric.
    pub sum: f64,
    /// Iterations of the blocks that the values belong to.
    pub iterations: f64,
}

/// Operations of one rank in one communicator that its GPU measures.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedOperations {
    /// Rank.
    pub origin: Arc<Origin>,
    /// Communicator.
    pub comm: CommId,
    /// Number of operations.
    pub operations: f64,
    /// Number of those with a time.
    pub timed: f64,
}

/// Task that host evidence names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceTask {
    /// Name, or `(others)` for the sum of those that the agent did not name.
    pub name: String,
    /// CPU on which it ran last.
    pub cpu: Option<u32>,
}

/// Filters of [`EventStore::job_events`]; an absent filter matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobQuery {
    /// Cluster.
    pub cluster: ClusterId,
    /// Job; `None` selects events without a job.
    pub job: Option<JobId>,
    /// Rank within the job.
    pub rank: Option<Rank>,
    /// Role of the rank.
    pub role: Option<RoleId>,
    /// Communicator.
    pub comm: Option<CommId>,
    /// Metrics.
    pub metrics: Vec<MetricName>,
    /// Clock that measured the events.
    pub source: Option<Source>,
    /// Event time on the senders' clocks.
    pub window: Window,
    /// Blocks; an event matches if it ends inside one of them.
    pub blocks: Option<Vec<SeqRange>>,
    /// Largest number of events.
    pub limit: usize,
}

/// Metrics whose attributes the detector reads: elapsed times per operation, how long a rank
/// has been blocked, and its place in the communicator of summed durations.
pub(crate) const WITH_ATTRS: [&str; 3] = [metric::ELAPSED, metric::ISSUED, metric::DURATION];

/// Returns true if the detector reads the attributes of an event.
pub(crate) fn uses_attrs(event: &Event) -> bool {
    WITH_ATTRS.contains(&event.metric.as_str())
}

/// Returns true if the detector reads the samples of the event.
fn uses_samples(event: &Event) -> bool {
    event.metric.as_str() == metric::WAIT && is_by_gpu(event)
}

/// Returns true if the detector ignores the event although it follows the metric: a wait that was
/// not measured by a GPU.
fn is_host_wait(event: &Event) -> bool {
    event.metric.as_str() == metric::WAIT && !is_by_gpu(event)
}

fn is_by_gpu(event: &Event) -> bool {
    let block = event.block.as_ref();
    block.is_some_and(|block| block.source == Source::Device)
}
