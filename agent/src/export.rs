//! Where points go: a trait with two ends, and the delivery that retries in front of either.

pub mod delivery;
pub mod null;
pub mod otlp;

use std::time::Duration;

use fleet_proto::policy::PolicySet;
use thiserror::Error;

use crate::signal::Point;

/// Points of one host, sent and acknowledged together. Times are Unix nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Number within the agent instance, from 1; kept when the batch is sent again.
    pub number: u64,
    /// The points, by process.
    pub resources: Vec<ResourcePoints>,
}

impl Batch {
    /// Number of points.
    pub fn n_points(&self) -> usize {
        self.resources
            .iter()
            .map(|resource| resource.points.len())
            .sum()
    }
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
    /// Points that it refused.
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

/// An end for points.
pub trait Export: Send + Sync + 'static {
    /// Delivers a batch; an acknowledgement means that it is safe with the receiver.
    fn export(&self, batch: &Batch) -> impl Future<Output = Result<Ack, ExportError>> + Send;
}
