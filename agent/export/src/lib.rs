//! Where points go: a trait with two ends, and what stands in front of them. [`delivery`] retries and gives up, for what
//! can be run again; [`sender`] never does, and keeps batches in a [`spool`] meanwhile.

pub mod delivery;
pub mod encoded;
pub mod null;
pub mod otlp;
pub mod sender;
pub mod spool;
pub mod token;
pub mod vitals;

use std::time::Duration;

use fleet_agent_core::batch::{Batch, VerdictBatch};
use fleet_proto::policy::PolicySet;
use thiserror::Error;
use tokio::time::Instant;

use crate::encoded::Encoded;

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
