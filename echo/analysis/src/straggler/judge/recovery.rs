//! A rank that was late from the first step on, found and priced when the job becomes faster: seen backwards in
//! time, that is the beginning of a fault, with the faster time as the past.

use super::Judge;
use crate::straggler::bill::mirrored;
use crate::straggler::history::History;
use crate::straggler::measure::Measured;
use crate::straggler::usual::Usual;

/// Least share of the time that was lost. Healthy jobs were up to a tenth faster for a while: between
/// checkpoints, or when the host that happened to be the slowest changed.
const LEAST_LOSS: f64 = 0.15;

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
    /// Adds an evaluation that is much faster than the past, or ends what was faster.
    fn add(&mut self, measured: &Measured, usual: &Usual) {
        let signed = usual.signed_loss(&measured.paces);
        // Of the time before, compared with this evaluation.
        let loss = signed.map_or(0.0, |signed| signed / (signed - 1.0));
        if loss <= LEAST_LOSS {
            self.faster = History::default();
            self.is_judged = false;
            return;
        }
        if self.faster.len() == 0 {
            self.since = measured.until - measured.seconds;
        }
        self.faster.push(measured, measured.seconds);
    }
}

impl Judge {
    /// Judges the time before again once the job has been much faster for long enough. A rank for which the
    /// others waited then is named, and its time priced. Returns true if the past is another one then, which
    /// has this evaluation already.
    pub(super) fn judge_recovery(&mut self, measured: &Measured, has_transfers: bool) -> bool {
        let is_late = self.incidents.has_late();
        let slow = if is_late {
            self.recovery.late.usual(&self.rule)
        } else {
            self.usual.clone()
        };
        let Some(slow) = slow else {
            return false;
        };
        self.recovery.add(measured, &slow);
        let Recovery {
            since,
            is_judged,
            ref faster,
            ..
        } = self.recovery;
        if is_judged || !self.incidents.is_empty() {
            return false;
        }
        let Some(usual) = faster.usual(&self.rule) else {
            return false;
        };
        self.recovery.is_judged = true;
        if !is_late && !self.history.is_slower_than(&usual, LEAST_LOSS, since) {
            return false;
        }
        // A few evaluations tell less of how the pace varies than a long past.
        let limits = Usual {
            allowance: usual.allowance.max(slow.allowance),
            enough_s: usual.enough_s.max(slow.enough_s),
            enough_alone_s: usual.enough_alone_s.max(slow.enough_alone_s),
            ..usual.clone()
        };
        let of_late = is_late.then(|| std::mem::take(&mut self.recovery.late));
        let past = of_late.unwrap_or_else(|| std::mem::take(&mut self.history));
        let fast = std::mem::take(&mut self.recovery.faster);
        let (is_named, fast) =
            self.judge_backwards((&past, since), (&limits, fast), measured, has_transfers);
        if is_named {
            self.history = fast;
            self.usual = Some(usual);
            self.flows = None;
            self.skip();
            self.recovery = Recovery::default();
        } else {
            self.recovery.faster = fast;
            if is_late {
                self.recovery.late = past;
            } else {
                self.history = past;
            }
        }
        is_named
    }

    /// Adds the incidents of the time before `since`, job time, that the healthy time after it shows. Returns
    /// whether there are some, and the healthy time.
    fn judge_backwards(
        &mut self,
        (slow, since): (&History, f64),
        (usual, healthy): (&Usual, History),
        measured: &Measured,
        has_transfers: bool,
    ) -> (bool, History) {
        let mut again = Self::new(self.rule, self.source);
        again.history = healthy;
        for mut earlier in slow.before(since) {
            earlier.until = mirrored(earlier.until - earlier.seconds, since);
            earlier.node_of.clone_from(&measured.node_of);
            earlier.living = measured.living;
            if let Some(mut loss) = usual.loss(&earlier.paces) {
                loss.seconds = earlier.seconds;
                again.judge_loss(&earlier, loss, usual, has_transfers);
            }
        }
        let is_named = self
            .incidents
            .add_ended(again.incidents, since, measured.until);
        (is_named, again.history)
    }
}
