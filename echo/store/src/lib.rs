//! Where events and conclusions are kept, behind one trait.
//!
//! Invariant: nothing outside `store` knows SQL or the engine. Windows, names and limits arrive checked.

pub mod duckdb;
pub mod hours;
pub mod limits;
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
use echo_core::model::detector_output::{DetectorOutput, Incident, LostTime};
use echo_core::model::event::{Event, EventBatch, Origin, SeqRange, Source, StoredEvent};
use fleet_proto::metric;
use tokio::sync::watch;

pub use crate::failure::StoreError;
use crate::hours::CostHours;
use crate::readiness::Obstacle;
use crate::resume::{Resume, WarmUp};
use crate::sql::{SqlError, SqlQuestion, SqlTable, ViewDocs};
use crate::timeseries::{CoursePoint, CourseQuery};
pub use crate::vitals::{Unnameable, Vitals};
use echo_core::units::{Nanos, Window};

/// A database of events and conclusions. Shared as `Arc<dyn EventStore>`.
#[async_trait]
pub trait EventStore: CostHours + std::fmt::Debug {
    /// Stores the batch durably, or reports that a batch with the same key was stored before. The events of a batch
    /// get consecutive numbers in their order, and all of them are numbered above every event committed earlier.
    async fn append(&self, batch: EventBatch) -> Result<Appended, StoreError>;

    /// Events that must not be appended because there is no room for what is new in their series, origins or clusters, by
    /// their places; never an event in which nothing is new. They came with the token of this name, which leaves others as much as
    /// it brings. Requests that are on their way together share the room.
    fn unnameable(&self, _events: &[Event], _token: Option<&str>) -> Vec<(usize, Unnameable)> {
        Vec::new()
    }

    /// One page of events, newest first.
    async fn events(&self, query: EventQuery) -> Result<Page, StoreError>;

    /// Up to `limit` events of the given metrics with a number above `after`, in the order of their numbers,
    /// without their attributes (an empty object stands for them). Waits, `nccl.collective.wait_ms`, are given only as
    /// measured by a GPU: those of hosts are judged by nobody. They alone come with samples, because nothing else is judged
    /// by single operations.
    async fn tail(
        &self,
        after: u64,
        metrics: &[MetricName],
        limit: usize,
    ) -> Result<Tail, StoreError>;

    /// Stores conclusions durably, all or none.
    async fn conclude(&self, conclusions: DetectorOutput) -> Result<(), StoreError>;

    /// Where a detector goes on after a restart, and what it needs for that: events of `warm_up` before what has been judged,
    /// and the last policy of each cluster, in the order of their names.
    async fn resume(&self, warm_up: WarmUp) -> Result<Resume, StoreError>;

    /// Incidents of the cluster (of all clusters when none is given) that were open at any time in the window,
    /// oldest first, in their latest state. One that is still open counts as open after it was last seen, too, and
    /// one that was cleared until it was cleared.
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

    /// Who reported in the window: one row per job, node and rank (or node without rank), in the order of their
    /// origins. Where a rank told different things about itself, the row has what it told last.
    async fn coverage(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<Coverage>, StoreError>;

    /// What each rank of a cohort reported of each kind of host evidence (metrics named `fleet.host.*`) in blocks that
    /// lie inside the range of operations, in the order of ranks and kinds. Points without a block are left out.
    async fn host_evidence(&self, query: EvidenceQuery) -> Result<Vec<EvidenceSum>, StoreError>;

    /// Events of a job about blocks, in the order of their numbers, without attributes, with samples as in [`Self::tail`]. Of more
    /// than the limit the latest are given.
    async fn job_events(&self, query: JobQuery) -> Result<Vec<StoredEvent>, StoreError>;

    /// Sums of histogram signals per rank, communicator, operation and stretch of a window, in no particular order. All reports of a
    /// block lie in the same stretch. A rank that told different things about itself has several sums. Waits are given only as measured by a GPU, as in [`Self::tail`].
    async fn course(&self, query: CourseQuery) -> Result<Vec<CoursePoint>, StoreError>;

    /// Clusters that have sent events, also where all of them were deleted within the last hours.
    async fn clusters(&self) -> Result<BTreeSet<ClusterId>, StoreError>;

    /// Event times of the first and last event, nothing when there are none.
    async fn extent(
        &self,
        cluster: Option<&ClusterId>,
    ) -> Result<Option<(Nanos, Nanos)>, StoreError>;

    /// How much the store holds and how much waits for it; nothing where that is not bounded.
    fn vitals(&self) -> Vitals {
        Vitals::default()
    }

    /// What keeps the store from taking events, gravest first; nothing when it takes them.
    fn obstacles(&self) -> Vec<Obstacle> {
        Vec::new()
    }

    /// Up to when what was received has been deleted by retention; nothing when nothing was.
    async fn dropped_until(&self) -> Result<Option<Nanos>, StoreError> {
        Ok(None)
    }

    /// Runs SQL that only reads the published views. A question that is dropped is stopped.
    async fn run_sql(&self, _question: SqlQuestion) -> Result<SqlTable, SqlError> {
        Err(StoreError::Closed.into())
    }

    /// What SQL can ask about, those views first that most questions are about.
    async fn views(&self) -> Result<Vec<ViewDocs>, StoreError> {
        Ok(Vec::new())
    }

    /// Number of the last committed event; changes wake whoever follows with [`Self::tail`].
    fn committed(&self) -> watch::Receiver<u64>;
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// Its events are stored, durably.
    Stored {
        /// Number of events.
        events: usize,
    },
    /// A batch with the same key had been stored before; nothing was added.
    Duplicate,
}

/// Filters of [`EventStore::events`]; an absent filter lets everything pass.
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
    /// Where the page before ended.
    pub cursor: Option<Cursor>,
}

/// Where a page ended: the next one begins with the event before this one in (timestamp, number) order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Event time of the last event on the page.
    pub timestamp: Nanos,
    /// Number of that event.
    pub id: u64,
}

impl Cursor {
    /// The end of a page whose last event this is.
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
    /// Set when there are more.
    pub next: Option<Cursor>,
}

/// A stretch of events in the order of their numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Tail {
    /// The events that matched.
    pub events: Vec<StoredEvent>,
    /// Everything up to this number has been looked at.
    pub until: u64,
}

/// What one rank, or one node without rank, reported in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// Who.
    pub origin: Arc<Origin>,
    /// First event time.
    pub first: Nanos,
    /// Last event time.
    pub last: Nanos,
    /// Whether it told what its host went through (metrics named `fleet.host.*`).
    pub has_host_evidence: bool,
}

/// Which evidence is meant by [`EventStore::host_evidence`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceQuery {
    /// Cluster.
    pub cluster: ClusterId,
    /// Job; nothing means events that name none.
    pub job: Option<JobId>,
    /// Role of the cohort.
    pub role: RoleId,
    /// Event time on the senders' clocks.
    pub window: Window,
    /// Operations; a block counts when it lies inside.
    pub seqs: SeqRange,
}

/// Evidence of one kind and rank.
#[derive(Debug, Clone, PartialEq)]
pub struct EvidenceSum {
    /// Rank within the job.
    pub rank: Rank,
    /// Kind of evidence.
    pub metric: MetricName,
    /// Sum of the values, in the unit of the metric.
    pub sum: f64,
    /// Iterations of the blocks that they came with.
    pub iterations: f64,
}

/// Which events of blocks are meant by [`EventStore::job_events`]; an absent filter lets everything pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobQuery {
    /// Cluster.
    pub cluster: ClusterId,
    /// Job; nothing means events that name none.
    pub job: Option<JobId>,
    /// Rank within the job.
    pub rank: Option<Rank>,
    /// Role of the rank.
    pub role: Option<RoleId>,
    /// Communicator.
    pub comm: Option<CommId>,
    /// Metrics.
    pub metrics: Vec<MetricName>,
    /// Where it was measured.
    pub source: Option<Source>,
    /// Event time on the senders' clocks.
    pub window: Window,
    /// Blocks; an event passes when it ends inside one of them.
    pub blocks: Option<Vec<SeqRange>>,
    /// Largest number of events.
    pub limit: usize,
}

/// Metrics whose attributes the detector reads: what operations took how long, and how long a rank has been blocked.
pub(crate) const WITH_ATTRS: [&str; 2] = [metric::ELAPSED, metric::ISSUED];

/// Whether the detector reads the attributes of an event.
pub(crate) fn judges_attrs(event: &Event) -> bool {
    WITH_ATTRS.contains(&event.metric.as_str())
}

/// Whether the detector reads the samples of the event.
fn judges_samples(event: &Event) -> bool {
    event.metric.as_str() == metric::WAIT && is_by_gpu(event)
}

/// Whether the detector leaves the event out although it follows its metric: a wait that no GPU measured.
fn is_idle_wait(event: &Event) -> bool {
    event.metric.as_str() == metric::WAIT && !is_by_gpu(event)
}

fn is_by_gpu(event: &Event) -> bool {
    let block = event.block.as_ref();
    block.is_some_and(|block| block.source == Source::Device)
}
