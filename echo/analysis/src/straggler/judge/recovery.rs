//! A rank that was late from the first step on, found and priced when the job becomes faster: seen backwards in
//! time, that is the beginning of a fault, with the faster time as the past.

use super::Judge;
use crate::straggler::bill::mirrored;
use crate::straggler::history::History;
use crate::straggler::measure::Measured;
use crate::straggler::rule::Rule;
use crate::straggler::usual::Usual;

/// Time that was slow, at least, seconds: while a job starts, one rank often has more to do.
const LEAST_SLOW_S: f64 = 20.0;

/// What a judge keeps for the time after a fault without a past.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Time in which a rank is late without a past.
    pub(super) late: History,
    /// Time since the job became faster than in its past, while it stays so.
    faster: History,
    /// Beginning of that, job time, seconds.
    since: f64,
    is_judged: bool,
}

impl Recovery {
    /// Adds an evaluation that is faster than the past, by more than the pace usually varies, or ends
    /// what was faster.
    fn add(&mut self, measured: &Measured, usual: &Usual) {
        let signed = usual.signed_loss(&measured.paces);
        // Of the time before, compared with this evaluation.
        let loss = signed.map_or(0.0, |signed| signed / (signed - 1.0));
        if loss <= usual.allowance {
            self.faster = History::default();
            self.is_judged = false;
            return;
        }
        if self.faster.len() == 0 {
            self.since = measured.until - measured.seconds;
        }
        self.faster.push(measured, measured.seconds);
    }

    /// The time that is faster, once it is long enough for a past, and what it says.
    fn faster(&mut self, rule: &Rule) -> Option<(History, Usual)> {
        let usual = (!self.is_judged).then(|| self.faster.usual(rule))??;
        self.is_judged = true;
        Some((self.faster.clone(), usual))
    }
}

impl Judge {
    /// Judges the time before again once it is followed by one that is healthy or was faster for a while. A rank
    /// for which the others waited then is named, and its time priced.
    pub(super) fn judge_recovery(&mut self, measured: &Measured, has_transfers: bool) {
        let Some(usual) = self.usual.clone() else {
            return;
        };
        if self.incidents.has_late() && self.alone.is_none() {
            let late = std::mem::take(&mut self.recovery.late);
            let fast = (self.history.clone(), usual);
            self.judge_backwards((&late, late.until()), fast, measured, has_transfers);
            return;
        }
        self.recovery.add(measured, &usual);
        let since = self.recovery.since;
        if !self.incidents.is_empty() || self.history.seconds_before(since) < LEAST_SLOW_S {
            return;
        }
        let Some(fast) = self.recovery.faster(&self.rule) else {
            return;
        };
        let slow = std::mem::take(&mut self.history);
        if self.judge_backwards((&slow, since), fast.clone(), measured, has_transfers) {
            (self.history, self.usual) = (fast.0, Some(fast.1));
            self.flows = None;
            self.skip();
            self.recovery = Recovery::default();
        } else {
            self.history = slow;
        }
    }

    /// Adds the incidents of the time before `since`, job time, which the faster one after it shows; returns
    /// true if there are some.
    fn judge_backwards(
        &mut self,
        (slow, since): (&History, f64),
        (fast, usual): (History, Usual),
        measured: &Measured,
        has_transfers: bool,
    ) -> bool {
        let mut again = Self::new(self.rule, self.source);
        again.history = fast;
        for mut earlier in slow.before(since) {
            earlier.until = mirrored(earlier.until - earlier.seconds, since);
            earlier.node_of.clone_from(&measured.node_of);
            earlier.living = measured.living;
            if let Some(mut loss) = usual.loss(&earlier.paces) {
                loss.seconds = earlier.seconds;
                again.judge_loss(&earlier, loss, &usual, has_transfers);
            }
        }
        self.incidents
            .add_ended(again.incidents, since, measured.until)
    }
}
