//! What became of the batches of an agent instance.

use std::collections::BTreeMap;

use crate::delivery::verdicts::VerdictReport;
use crate::vitals::Amount;

/// Different texts of rejection that are kept; further ones are counted together.
const MAX_REASONS: usize = 16;

/// What became of the batches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Batches that were acknowledged.
    pub batches_acked: u64,
    /// Batches of them of which the receiver refused a part.
    pub batches_rejected: u64,
    /// Batches that were given up, or refused whole.
    pub batches_dropped: u64,
    /// Points in them.
    pub points_sent: u64,
    /// Points of them that the receiver refused.
    pub points_rejected: u64,
    /// Points that were given up.
    pub points_dropped: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Reasons of the receiver, with the number of points each.
    pub reasons: BTreeMap<String, u64>,
    /// Why a batch was refused whole, for the first of them.
    pub refusal: Option<String>,
    /// Version of the last policy set.
    pub policy_version: Option<u64>,
    /// What became of the verdicts of the processes.
    pub verdicts: VerdictReport,
}

impl Report {
    /// Adds another instance's report.
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

    /// Counts points under the reason that the receiver gave.
    pub(super) fn refuse(&mut self, reason: &str, points: u64) {
        let reason = match reason {
            "" => "no reason given",
            known if self.reasons.contains_key(known) => known,
            _ if self.reasons.len() >= MAX_REASONS => "other reasons",
            new => new,
        };
        *self.reasons.entry(reason.to_owned()).or_default() += points;
    }

    /// Counts batches that were given up or refused whole.
    pub(super) fn gave_up(&mut self, amount: Amount) {
        self.batches_dropped += amount.batches;
        self.points_dropped += amount.points;
    }
}
