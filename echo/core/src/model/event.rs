//! Incoming data: one event per OTLP data point.

use std::sync::Arc;

use crate::ids::{
    AgentInstance, ClusterId, CommId, JobId, MetricName, NodeId, Op, RankInJob, RoleId,
};
use crate::units::Nanos;

/// One OTLP data point.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Time of the point, or end of its interval, on the sender's clock.
    pub timestamp: Nanos,
    /// Start of its interval on the sender's clock, if it has one.
    pub start: Option<Nanos>,
    /// Sender of the point.
    pub origin: Arc<Origin>,
    /// Name of the metric.
    pub metric: MetricName,
    /// Unit as sent; empty if the sender sent none.
    pub unit: Arc<str>,
    /// The measurement.
    pub reading: Reading,
    /// Collectives that the point covers, if any.
    pub block: Option<Block>,
    /// All attributes without a column of their own, as a JSON object.
    pub attrs: Arc<str>,
    /// Sampled single operations (exemplars).
    pub samples: Vec<OpSample>,
}

/// Sender of a point. Its fields are columns of the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Cluster of the node.
    pub cluster: ClusterId,
    /// Node that the process runs on.
    pub node: NodeId,
    /// Rank within the job, when the point belongs to one.
    pub rank: Option<RankInJob>,
    /// Job that the rank belongs to, when known.
    pub job: Option<JobId>,
    /// Model of the rank's GPU, when known.
    pub gpu_model: Option<Arc<str>>,
    /// Identity of the rank's GPU, when known.
    pub gpu_uuid: Option<Arc<str>>,
    /// Kubernetes namespace, when known.
    pub namespace: Option<Arc<str>>,
    /// Kubernetes pod, when known.
    pub pod: Option<Arc<str>>,
}

/// Measured quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reading {
    /// A finite gauge or sum as a floating-point number.
    Double(f64),
    /// A whole number.
    Int(i64),
    /// A distribution without buckets.
    Histogram(Summary),
}

/// Count, sum and extremes of a distribution. All values are finite, `min <= max`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of samples.
    pub count: u64,
    /// Sum of the samples, in the unit of the metric.
    pub sum: f64,
    /// Smallest sample, when sent.
    pub min: Option<f64>,
    /// Largest sample, when sent.
    pub max: Option<f64>,
}

impl Summary {
    /// Mean of the samples; `None` without samples.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of one block stay far below 2^53"
    )]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// The collectives that a point covers.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Communicator.
    pub comm: CommId,
    /// Operation.
    pub op: Option<Op>,
    /// Sequence numbers, both inclusive, when the sender numbers its operations.
    pub seqs: Option<SeqRange>,
    /// Role of the rank, when the sender knows it.
    pub role: Option<RoleId>,
    /// Number of iterations covered, when the sender knows it.
    pub iterations: Option<f64>,
    /// The last completion shared by all ranks before the block (arrival signal only).
    pub anchor: Option<Anchor>,
    /// Source of the measurement.
    pub source: Source,
}

/// Source of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Source {
    /// Library calls observed on the host.
    #[default]
    Host,
    /// Timestamps taken by the GPU.
    Device,
}

impl Source {
    /// Name in responses, tables and OTLP.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
        }
    }
}

/// Sequence numbers of one communicator, both ends inclusive, `first <= last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqRange {
    first: u64,
    last: u64,
}

impl SeqRange {
    /// The operations `first..=last`; `None` if that is empty.
    pub fn new(first: u64, last: u64) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// First sequence number.
    pub const fn first(self) -> u64 {
        self.first
    }

    /// Last sequence number.
    pub const fn last(self) -> u64 {
        self.last
    }
}

/// Reference of a block to the last completion common to all ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Anchor {
    /// Sequence number of the last operation known to be complete on every rank.
    pub seq: u64,
    /// Time from that completion to the first operation of the block, milliseconds on the rank's
    /// own clock.
    pub offset_ms: f64,
}

/// One sampled operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpSample {
    /// Sequence number within the communicator.
    pub seq: u64,
    /// Value in the unit of the metric.
    pub value: f64,
    /// Time of the operation, on the sender's clock.
    pub timestamp: Nanos,
}

/// Events that are stored together or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct EventBatch {
    /// Identity of the batch; a second batch with the same key is not stored again.
    pub key: BatchKey,
    /// Arrival time, on Echo's clock.
    pub received: Nanos,
    /// The events.
    pub events: Vec<Event>,
}

/// Identity of a batch, equal when it is sent again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BatchKey {
    /// The agent numbers its batches.
    Numbered {
        /// Agent process.
        agent: AgentInstance,
        /// Number of the batch within the process.
        number: u64,
    },
    /// A sender that does not number its batches: 128-bit hash of the request's bytes.
    Content(u128),
}

/// An event with the number that the store gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    /// Number of the event, growing with every commit.
    pub id: u64,
    /// Arrival time, on Echo's clock.
    pub received: Nanos,
    /// The event.
    pub event: Event,
}
