//! Delivery of points and self-verdicts: the exporter traits, and the queues in front of them.
//! [`delivery`] retries and gives up, for sources that can be run again; [`sender`] never gives up,
//! and keeps batches in a [`spool`] meanwhile.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a queued batch holds its place in the queue; the lint takes every owner of the queue for a guard"
)]

pub mod delivery;
pub mod encoded;
pub mod null;
pub mod otlp;
pub mod sender;
pub mod spool;
pub mod statement;
pub mod token;
pub mod vitals;

use std::time::Duration;

use fleet_agent_core::batch::{Batch, VerdictBatch};
use fleet_proto::policy::{HostCulprits, PolicySet};
use thiserror::Error;
use tokio::time::Instant;

use crate::encoded::EncodedBatch;

/// Response of the receiver to a batch that it accepted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ack {
    /// Points, or verdicts, that it rejected.
    pub rejected: u64,
    /// Reason, in the receiver's words.
    pub reason: String,
    /// Policy set for the agent.
    pub policy: Option<PolicySet>,
    /// Culprits on the host of the agent; `None` without a statement.
    pub culprits: Option<HostCulprits>,
}

/// Reason that a batch was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExportError {
    /// The batch can be retried.
    #[error("{reason}")]
    Later {
        /// Delay that the receiver requests before the next attempt.
        after: Option<Duration>,
        /// Description of the failure.
        reason: String,
    },
    /// The batch will never be accepted.
    #[error("{reason}")]
    Refused {
        /// Description of the failure.
        reason: String,
    },
}

/// Exporter of points and verdicts.
pub trait Export: Send + Sync + 'static {
    /// Delivers a batch; an acknowledgement means that the receiver has stored it.
    fn export(&self, batch: &Batch) -> impl Future<Output = Result<Ack, ExportError>> + Send;

    /// Delivers verdicts in the same way. A receiver can refuse all verdicts and still accept
    /// points.
    fn export_verdicts(
        &self,
        batch: &VerdictBatch,
    ) -> impl Future<Output = Result<Ack, ExportError>> + Send;
}

/// Exporter that also sends encoded batches, the form in which they are spooled.
pub trait Forward: Export {
    /// Encodes a batch as this agent instance sends it.
    fn encode(&self, batch: &Batch) -> EncodedBatch;

    /// Delivers a batch under the instance that closed it. Missing permissions do not refuse it:
    /// they can be granted later.
    fn forward(
        &self,
        batch: &EncodedBatch,
    ) -> impl Future<Output = Result<Ack, ExportError>> + Send;
}

/// Current time of the runtime.
#[expect(
    clippy::disallowed_methods,
    reason = "tests can pause the runtime's time, which also passes during an attempt"
)]
fn now() -> Instant {
    Instant::now()
}
