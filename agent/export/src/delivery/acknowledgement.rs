//! Results of batches: counts, and the policy that is passed back to the source.

use std::sync::Arc;

use fleet_agent_core::policy::PolicyChanges;

use crate::Ack;
use crate::delivery::outbox::Feedback;
use crate::delivery::report::Report;
use crate::statement::Statement;
use crate::vitals::{Amount, Loss, Vitals};

/// Records the results of batches.
#[derive(Debug)]
pub(crate) struct AckTracker {
    pub(crate) report: Report,
    pub(crate) vitals: Arc<Vitals>,
    feedback: Feedback,
    policy_changes: PolicyChanges,
    refusals: Refusals,
}

/// Batches refused in a row, of which the log has the first one for each reason.
#[derive(Debug, Default)]
struct Refusals {
    reason: Option<String>,
    count: u64,
}

impl Refusals {
    /// Records a refusal. Returns whether its reason differs from that of the batch before.
    fn is_news(&mut self, reason: &str) -> bool {
        self.count += 1;
        let is_news = self.reason.as_deref() != Some(reason);
        self.reason = Some(reason.to_owned());
        is_news
    }

    /// Records an accepted batch. Returns how many were refused before it.
    fn end(&mut self) -> u64 {
        std::mem::take(self).count
    }
}

impl AckTracker {
    pub(crate) fn new(feedback: Feedback, vitals: &Arc<Vitals>) -> Self {
        Self {
            report: Report::default(),
            vitals: Arc::clone(vitals),
            feedback,
            policy_changes: PolicyChanges::default(),
            refusals: Refusals::default(),
        }
    }

    /// Records a batch that is stored by the receiver.
    pub(crate) fn record_ack(&mut self, points: u64, ack: Ack) {
        self.vitals.record_ack(points, ack.rejected);
        let refused = self.refusals.end();
        if refused > 0 {
            tracing::info!(refused, "batches are accepted again");
        }
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
            self.feedback.policy.send_replace(Some(Arc::new(policy)));
        }
        let statement = Statement::new(ack.culprits);
        self.feedback.statements.send_replace(Some(statement));
    }

    /// Records a batch that the receiver will never accept.
    pub(crate) fn record_refusal(&mut self, number: u64, points: u64, reason: String) {
        if self.refusals.is_news(&reason) {
            tracing::error!(
                batch.number = number,
                points,
                "batch refused: {reason}; further refusals for this reason are counted, not logged"
            );
        }
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

#[cfg(test)]
mod tests {
    use super::Refusals;

    #[test]
    fn a_refusal_is_news_once_for_each_reason_in_a_row() {
        let mut refusals = Refusals::default();
        let news = ["no permission", "no permission", "too large", "too large"];
        let news = news.map(|reason| refusals.is_news(reason));
        assert_eq!(news, [true, false, true, false]);
        assert_eq!((refusals.end(), refusals.end()), (4, 0));
        assert!(refusals.is_news("too large"), "it was accepted meanwhile");
    }
}
