//! Where points go: a trait with two ends, and what stands in front of them. [`delivery`] retries and gives up, for what
//! can be run again; [`sender`] never does, and keeps batches in a [`spool`] meanwhile.

pub mod delivery;
pub mod encoded;
pub mod null;
pub mod otlp;
pub mod sender;
pub mod spool;
pub mod vitals;

use std::time::Duration;

use fleet_proto::policy::PolicySet;
use thiserror::Error;
use tokio::time::Instant;

use crate::export::encoded::Encoded;
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
    pub own: Option<OwnCounts>,
}

/// How counts of an agent itself rose over some time. Times are Unix nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCounts {
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
        let own = self.own.as_ref().map_or(0, |own| own.counts.len());
        of_processes.sum::<usize>() + own
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

/// What the receiver said of a batch that it took.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ack {
    /// Points, or verdicts, that it refused.
    pub rejected: u64,
    /// Why, in its own words.
    pub reason: String,
    /// What it asks of the agent.
    pub policy: Option<PolicySet>,
}

/// Why a batch was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExportError {
    /// It may be taken later.
    #[error("{reason}")]
    Later {
        /// Earliest moment of the next attempt, when the receiver names one.
        after: Option<Duration>,
        /// What happened.
        reason: String,
    },
    /// It will never be taken.
    #[error("{reason}")]
    Refused {
        /// What happened.
        reason: String,
    },
}

/// An end for points and verdicts.
pub trait Export: Send + Sync + 'static {
    /// Delivers a batch; an acknowledgement means that it is safe with the receiver.
    fn export(&self, batch: &Batch) -> impl Future<Output = Result<Ack, ExportError>> + Send;

    /// Delivers verdicts in the same way. A receiver may refuse them for good and still take points.
    fn tell(&self, batch: &VerdictBatch) -> impl Future<Output = Result<Ack, ExportError>> + Send;
}

/// An end that also takes batches in the form in which they wait on disk.
pub trait Forward: Export {
    /// The batch as this agent instance sends it.
    fn encode(&self, batch: &Batch) -> Encoded;

    /// Delivers a batch, under the instance that closed it. For want of permission it is not refused: that may come.
    fn forward(&self, batch: &Encoded) -> impl Future<Output = Result<Ack, ExportError>> + Send;
}

/// The runtime's time.
#[expect(
    clippy::disallowed_methods,
    reason = "tests can pause the runtime's time, which also passes during an attempt"
)]
fn now() -> Instant {
    Instant::now()
}
