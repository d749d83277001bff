//! What follows from the answer to a batch: counts, and the policy that goes back to the source.

use std::sync::Arc;

use fleet_agent_core::policy::PolicyChanges;
use fleet_proto::policy::PolicySet;
use tokio::sync::watch;

use crate::Ack;
use crate::delivery::report::Report;
use crate::vitals::{Amount, Loss, Vitals};

/// Where answers are written down.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) report: Report,
    pub(crate) vitals: Arc<Vitals>,
    policy: watch::Sender<Option<Arc<PolicySet>>>,
    policy_changes: PolicyChanges,
}

impl Ledger {
    pub(crate) fn new(policy: watch::Sender<Option<Arc<PolicySet>>>, vitals: &Arc<Vitals>) -> Self {
        Self {
            report: Report::default(),
            vitals: Arc::clone(vitals),
            policy,
            policy_changes: PolicyChanges::default(),
        }
    }

    /// The batch is safe with the receiver.
    pub(crate) fn acknowledged(&mut self, points: u64, ack: Ack) {
        self.vitals.acknowledged(points, ack.rejected);
        self.report.batches_acked += 1;
        self.report.points_sent += points;
        self.report.points_rejected += ack.rejected;
        if ack.rejected > 0 {
            self.report.batches_rejected += 1;
            self.report.refuse(&ack.reason, ack.rejected);
        }
        if let Some(policy) = ack.policy {
            for line in self.policy_changes.update(&policy) {
                tracing::info!("{line}");
            }
            self.policy.send_replace(Some(Arc::new(policy)));
        }
    }

    /// The receiver will never take the batch.
    pub(crate) fn refused(&mut self, number: u64, points: u64, reason: String) {
        tracing::error!(batch.number = number, points, "batch was refused: {reason}");
        self.vitals.answered();
        self.lost(Loss::Refused, Amount::batch(points));
        self.report.refuse(&reason, points);
        self.report.refusal.get_or_insert(reason);
    }

    /// Batches are lost on this side.
    pub(crate) fn lost(&mut self, loss: Loss, amount: Amount) {
        self.vitals.lost(loss, amount);
        self.report.gave_up(amount);
    }

    /// Everything that was written down.
    pub(crate) fn conclude(mut self) -> Report {
        self.report.policy_version = self.policy_changes.version();
        self.report
    }
}
