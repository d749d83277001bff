//! A rank for which all others wait, while there is no past to compare with.

use crate::straggler::bill::Entry;
use crate::straggler::measure::Measured;
use crate::straggler::rule::Rule;

/// Rank for which all others wait, in one evaluation after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alone {
    /// The rank.
    pub(super) rank: usize,
    /// Begin and end, job time, seconds.
    pub(super) since: f64,
    until: f64,
    /// Length of the past at the beginning, seconds.
    past_s: f64,
    /// Waiting of each peer, seconds.
    waited_s: f64,
    /// Part of it that is on no bill, and its beginning, job time, seconds.
    unbilled_s: f64,
    billed: f64,
}

impl Alone {
    /// The rank for which all others wait in an evaluation, with what they waited for it before.
    /// `past_s` is the length of the past, seconds.
    pub(super) fn take(
        before: Option<Self>,
        measured: &Measured,
        past_s: f64,
        rule: &Rule,
    ) -> Option<Self> {
        let (rank, flow) = measured.always_last()?;
        if flow.peer < rule.healthy_wait || flow.suffered > (1.0 - rule.alone) * flow.peer {
            return None;
        }
        let since = measured.until - measured.seconds;
        let mut alone = before.filter(|alone| alone.rank == rank).unwrap_or(Self {
            rank,
            since,
            until: since,
            past_s,
            waited_s: 0.0,
            unbilled_s: 0.0,
            billed: since,
        });
        // Operations that overlap are waited for at once.
        let waited_s = measured.seconds * flow.peer.min(1.0);
        alone.until = measured.until;
        alone.waited_s += waited_s;
        alone.unbilled_s += waited_s;
        Some(alone)
    }

    /// Returns true if the past was too short when it began.
    pub(super) fn has_no_past(&self, rule: &Rule) -> bool {
        self.past_s <= 2.0 * rule.need_s
    }

    /// Waiting of each peer beyond the longest of healthy jobs, seconds.
    pub(super) fn excess_s(&self, rule: &Rule) -> f64 {
        self.waited_s - rule.healthy_wait * (self.until - self.since)
    }

    /// Returns true if no healthy job waits like this.
    pub(super) fn is_late(&self, rule: &Rule) -> bool {
        let lasts = self.until - self.since >= rule.lasting_s;
        lasts || self.excess_s(rule) >= 2.0 * rule.enough_s
    }

    /// The lower bound of the loss that is on no bill yet.
    pub(super) fn bill(&mut self, measured: &Measured, rule: &Rule) -> Entry {
        let seconds = self.until - self.billed;
        let waited = self.unbilled_s / seconds;
        let loss = (waited - rule.healthy_wait).clamp(0.0, 1.0);
        let entry = Entry {
            from: self.billed,
            to: self.until,
            loss,
            weight: 1.0,
            gpu_s: measured.lost_gpu_s(seconds, loss),
            waited,
            late: 0.0,
        };
        self.unbilled_s = 0.0;
        self.billed = self.until;
        entry
    }
}
