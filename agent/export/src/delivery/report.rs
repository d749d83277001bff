//! Report of the delivery of an agent instance.

use std::collections::BTreeMap;

use crate::delivery::verdicts::VerdictReport;
use crate::vitals::Amount;

/// Number of rejection reasons counted separately; further ones are counted together.
const MAX_REASONS: usize = 16;

/// Report of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Batches acknowledged.
    pub batches_acked: u64,
    /// Batches among them of which the receiver rejected a part.
    pub batches_rejected: u64,
    /// Batches dropped, or refused as a whole.
    pub batches_dropped: u64,
    /// Points in the acknowledged batches.
    pub points_sent: u64,
    /// Points among them that the receiver rejected.
    pub points_rejected: u64,
    /// Points dropped.
    pub points_dropped: u64,
    /// Retries of batches.
    pub retries: u64,
    /// Rejection reasons of the receiver, with the number of points each.
    pub reasons: BTreeMap<String, u64>,
    /// Reason of the first batch that was refused as a whole.
    pub refusal: Option<String>,
    /// Version of the latest policy set.
    pub policy_version: Option<u64>,
    /// Report of the verdicts.
    pub verdicts: VerdictReport,
}

impl Report {
    /// Adds the report of another instance.
    pub fn add(&mut self, other: &Self) {
        self.batches_acked += other.batches_acked;
        self.batches_rejected += other.batches_rejected;
        self.batches_dropped += other.batches_dropped;
        self.points_sent += other.points_sent;
        self.points_rejected += other.points_rejected;
        self.points_dropped += other.points_dropped;
        self.retries += other.retries;
        for (reason, points) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += points;
        }
        if self.refusal.is_none() {
            self.refusal.clone_from(&other.refusal);
        }
        self.policy_version = self.policy_version.max(other.policy_version);
        self.verdicts.add(&other.verdicts);
    }

    /// Counts points under the receiver's rejection reason.
    pub(super) fn add_rejected(&mut self, reason: &str, points: u64) {
        let reason = match reason {
            "" => "no reason given",
            known if self.reasons.contains_key(known) => known,
            _ if self.reasons.len() >= MAX_REASONS => "other reasons",
            new => new,
        };
        *self.reasons.entry(reason.to_owned()).or_default() += points;
    }

    /// Counts batches that were dropped or refused as a whole.
    pub(super) fn add_dropped(&mut self, amount: Amount) {
        self.batches_dropped += amount.batches;
        self.points_dropped += amount.points;
    }
}
