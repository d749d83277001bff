//! Results of batches: counts, and the policy that is passed back to the source.

use std::sync::Arc;

use fleet_agent_core::policy::PolicyChanges;
use fleet_proto::policy::PolicySet;
use tokio::sync::watch;

use crate::Ack;
use crate::delivery::report::Report;
use crate::vitals::{Amount, Loss, Vitals};

/// Records the results of batches.
#[derive(Debug)]
pub(crate) struct AckTracker {
    pub(crate) report: Report,
    pub(crate) vitals: Arc<Vitals>,
    policy: watch::Sender<Option<Arc<PolicySet>>>,
    policy_changes: PolicyChanges,
}

impl AckTracker {
    pub(crate) fn new(policy: watch::Sender<Option<Arc<PolicySet>>>, vitals: &Arc<Vitals>) -> Self {
        Self {
            report: Report::default(),
            vitals: Arc::clone(vitals),
            policy,
            policy_changes: PolicyChanges::default(),
        }
    }

    /// Records a batch that is stored by the receiver.
    pub(crate) fn record_ack(&mut self, points: u64, ack: Ack) {
        self.vitals.record_ack(points, ack.rejected);
        self.report.batches_acked += 1;
        self.report.points_sent += points;
        self.report.points_rejected += ack.rejected;
        if ack.rejected > 0 {
            self.report.batches_rejected += 1;
            self.report.add_rejected(&ack.reason, ack.rejected);
        }
        if let Some(policy) = ack.policy {
            for line in self.policy_changes.update(&policy) {
                tracing::info!("{line}");
            }
            self.policy.send_replace(Some(Arc::new(policy)));
        }
    }

    /// Records a batch that the receiver will never accept.
    pub(crate) fn record_refusal(&mut self, number: u64, points: u64, reason: String) {
        tracing::error!(batch.number = number, points, "batch refused: {reason}");
        self.vitals.set_connected();
        self.record_loss(Loss::Refused, Amount::batch(points));
        self.report.add_rejected(&reason, points);
        self.report.refusal.get_or_insert(reason);
    }

    /// Records batches that are lost on this side.
    pub(crate) fn record_loss(&mut self, loss: Loss, amount: Amount) {
        self.vitals.record_loss(loss, amount);
        self.report.add_dropped(amount);
    }

    /// Returns the report of everything recorded.
    pub(crate) fn into_report(mut self) -> Report {
        self.report.policy_version = self.policy_changes.version();
        self.report
    }
}
