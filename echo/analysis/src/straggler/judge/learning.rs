//! Which evaluations become part of the past.

use super::Judge;
use crate::straggler::evidence::Subject;
use crate::straggler::history::History;
use crate::straggler::measure::Measured;

/// The usual waiting is taken again when the past has become longer by this share, or a tenth of
/// `MAX_PAST_S`: for thousands of ranks that takes longer than all else.
const FLOWS_AGE: f64 = 0.1;
const MAX_PAST_S: f64 = 200.0;

impl Judge {
    /// Appends the evaluation to the past if nothing speaks against it.
    pub(super) fn learn(&mut self, measured: &Measured, seconds: f64) {
        let is_alone = self.alone.is_some_and(|alone| {
            let is_late =
                alone.may_be_late(&self.rule) || self.incidents.is_late(Subject::Rank(alone.rank));
            alone.has_no_past(&self.rule) && is_late
        });
        if is_alone && seconds > 0.0 {
            self.recovery.late.push(measured, seconds);
        } else if !self.incidents.has_late() {
            self.recovery.late = History::default();
        }
        if is_alone || !self.incidents.is_empty() || seconds <= 0.0 {
            self.history.forget_held();
            return;
        }
        let usual = self.usual.as_ref();
        let enough_s = usual.map_or(self.rule.enough_s, |usual| usual.enough_s);
        let (named, unexplained) = self.evidence.largest();
        // Losses without a rank are added to the past sooner: they may be how the pace varies. A few
        // seconds of them would change a short past that was steady.
        let is_short = self.history.seconds() < self.rule.steady_s;
        let is_steady = is_short && enough_s < self.rule.enough_s;
        let least_s = if is_steady { 0.0 } else { enough_s / 2.0 };
        let is_suspicious = named > 0.0 || unexplained > least_s || self.lateness.largest() >= 0.5;
        if is_suspicious && !self.episode.is_mostly_healthy(measured.until) {
            let is_added = self.history.hold(measured, seconds);
            if is_added && is_steady && named <= 0.0 {
                // The pace may have changed for good.
                self.usual = self.history.usual(&self.rule);
            }
            return;
        }
        self.history.push(measured, seconds);
        self.usual = self.history.usual(&self.rule);
        self.flows_age_s += seconds;
        if self.flows_age_s > FLOWS_AGE * self.history.seconds().min(MAX_PAST_S) {
            self.flows = None;
            self.flows_age_s = 0.0;
        }
    }
}
