//! Records of what was done, what would have been done, and what was refused.

use crate::notice::{Notice, Phase};
use crate::policy::Mode;
use crate::refusal::Refusal;
use crate::state::Delivery;

/// One line of the log and of the audit log.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Name of the consumer.
    pub consumer: String,
    /// What happened to the incident.
    pub phase: Phase,
    /// Mode of the action.
    pub mode: Mode,
    /// What became of the action.
    pub outcome: Outcome,
    /// The delivery; `None` if there was none.
    pub delivery: Option<Box<Delivery>>,
    /// Facts about the incident.
    pub notice: Notice,
    /// Details, such as the answer of the consumer.
    pub detail: String,
}

/// What became of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Logged only, in shadow mode.
    Shadow,
    /// Accepted by the consumer.
    Sent,
    /// Not accepted; another attempt follows.
    Retried,
    /// Rejected by the consumer for good.
    Rejected,
    /// Given up after a day.
    Failed,
    /// Withdrawn before it was sent.
    Cancelled,
    /// Its consumer is no longer in the policy, so that it is not ended.
    Abandoned,
    /// Not permitted.
    Refused(Refusal),
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 14] = [
        Self::Shadow,
        Self::Sent,
        Self::Retried,
        Self::Rejected,
        Self::Failed,
        Self::Cancelled,
        Self::Abandoned,
        Self::Refused(Refusal::KillSwitch),
        Self::Refused(Refusal::LowConfidence),
        Self::Refused(Refusal::LowCoverage),
        Self::Refused(Refusal::Behind),
        Self::Refused(Refusal::NodeLimit),
        Self::Refused(Refusal::QueueFull),
        Self::Refused(Refusal::UnsafeName),
    ];

    /// Name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shadow => "shadow",
            Self::Sent => "sent",
            Self::Retried => "retried",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
            Self::Refused(refusal) => refusal.name(),
        }
    }
}

impl Record {
    /// Record of a delivery.
    pub fn of_delivery(
        delivery: &Delivery,
        mode: Mode,
        outcome: Outcome,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            consumer: delivery.consumer.clone(),
            phase: delivery.phase,
            mode,
            outcome,
            notice: delivery.notice.clone(),
            delivery: Some(Box::new(delivery.clone())),
            detail: detail.into(),
        }
    }
}
