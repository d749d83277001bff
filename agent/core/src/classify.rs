//! Lets a process judge itself between two policies, and when the collector is away. Pure.
//!
//! Only host gaps are judged: arrivals mean nothing without peers. A block is compared with the cohort's centre
//! as the last policy told it (`fleet`; `stale` once that has run out), else with the process's own healthy past
//! (`local`), else with nothing (`none`). Two late blocks in a row raise the verdict, three calm ones clear it; a
//! verdict that nothing supports any more is cleared like a calm one.

mod history;
mod reference;
mod window;

use std::collections::BTreeMap;

use fleet_proto::policy::CohortPolicy;

use crate::classify::history::History;
use crate::classify::reference::{AdoptedPolicy, Lateness, PolicyEntry, Reference};
use crate::classify::window::Window;
use crate::signal::{Block, Summary};
use crate::verdict::{Measure, Mode, SelfVerdict, State, Tally};

/// Late blocks in a row that raise the verdict, as in the collector.
const RAISE_AFTER: u32 = 2;
/// Calm blocks in a row that clear it.
const CLEAR_AFTER: u32 = 3;
/// Gaps that a block must have per iteration, as in the collector: a job that synchronises less often is not
/// judged by its gaps.
const MIN_GAPS_PER_ITERATION: f64 = 0.5;

/// Judges one process.
#[derive(Debug, Default)]
pub struct Classifier {
    adopted: Option<AdoptedPolicy>,
    window: Window,
    history: History,
    straggling: Option<Mode>,
    streak: u32,
    tallies: BTreeMap<Mode, Tally>,
}

impl Classifier {
    /// Takes the entry of the process's cohort in a policy set, seen at `now_ns` of the host's wall clock. An entry
    /// that is known already changes nothing.
    pub fn set_policy(
        &mut self,
        set_version: u64,
        computed_ns: u64,
        policy: &CohortPolicy,
        now_ns: u64,
    ) {
        let entry = PolicyEntry {
            set_version,
            computed_ns,
            policy,
        };
        self.adopted = Some(AdoptedPolicy::update(self.adopted.take(), entry, now_ns));
    }

    /// Tells which cohort the process belongs to now. Nothing that was asked of another one holds any longer.
    pub fn set_cohort(&mut self, cohort: Option<&str>) {
        self.adopted = self.adopted.take().filter(|known| known.is_for(cohort));
    }

    /// Takes the duration of one iteration, milliseconds.
    pub fn record_period(&mut self, period_ms: f64) {
        self.history.record_period(period_ms);
    }

    /// Judges the host gaps of one block that ended at `time_ns` of the host's wall clock; the verdict if it changed.
    /// Blocks of little more than an iteration are judged together with the next one.
    pub fn judge(&mut self, block: &Block, gaps: &Summary, time_ns: u64) -> Option<SelfVerdict> {
        let (block, gaps) = self.window.add(block, gaps)?;
        self.history.reset_if_changed(&block);
        let gap_ms = self
            .history
            .gap_ms(&gaps, block.iterations?, MIN_GAPS_PER_ITERATION)?;
        let (mode, reference) = self.reference(time_ns);
        let measure = reference.map(|reference| reference.measure(gap_ms));
        let lateness = reference.map_or(Lateness::OnTime, |reference| reference.lateness(gap_ms));
        if lateness != Lateness::Late && self.straggling.is_none() {
            self.history.record_healthy(gap_ms);
        }
        let state = self.advance(lateness, mode);
        let tally = self.tallies.entry(mode).or_default();
        tally.blocks += 1;
        match state {
            Some(State::Raised) => tally.raised += 1,
            Some(State::Cleared) => tally.cleared += 1,
            None => {}
        }
        state.map(|state| self.verdict((&block, time_ns), state, mode, measure))
    }

    /// What was judged so far, by mode.
    pub fn tallies(&self) -> &BTreeMap<Mode, Tally> {
        &self.tallies
    }

    fn reference(&self, time_ns: u64) -> (Mode, Option<Reference>) {
        let period_ms = self.history.period_ms();
        if let Some(adopted) = &self.adopted {
            // The cohort itself is not judged by its gaps, so the own past of gaps says nothing either.
            if !adopted.is_about_gaps() {
                return (Mode::None, None);
            }
            let mode = adopted.mode(time_ns);
            if let Some(reference) = mode.and_then(|_| adopted.reference(period_ms)) {
                return (mode.unwrap_or(Mode::None), Some(reference));
            }
        }
        let gates = self.adopted.as_ref().and_then(AdoptedPolicy::gates);
        match self.history.reference(gates.unwrap_or_default()) {
            Some(reference) => (Mode::Local, Some(reference)),
            None => (Mode::None, None),
        }
    }

    /// Moves the verdict by one block; what of it is news.
    fn advance(&mut self, lateness: Lateness, mode: Mode) -> Option<State> {
        let (counted, needed) = match self.straggling {
            None => (Lateness::Late, RAISE_AFTER),
            Some(_) => (Lateness::OnTime, CLEAR_AFTER),
        };
        self.streak = if lateness == counted {
            self.streak + 1
        } else {
            0
        };
        if self.streak >= needed {
            self.streak = 0;
            let cleared = self.straggling.take();
            if cleared.is_some() {
                return Some(State::Cleared);
            }
            self.straggling = Some(mode);
            return Some(State::Raised);
        }
        let shown_mode = self
            .straggling
            .as_mut()
            .filter(|shown_mode| **shown_mode != mode)?;
        *shown_mode = mode;
        Some(State::Raised)
    }

    fn verdict(
        &self,
        (block, time_ns): (&Block, u64),
        state: State,
        mode: Mode,
        measure: Option<Measure>,
    ) -> SelfVerdict {
        let by_policy = matches!(mode, Mode::Fleet | Mode::Stale);
        let version = self.adopted.as_ref().map(AdoptedPolicy::set_version);
        SelfVerdict {
            time_ns,
            block: block.clone(),
            state,
            mode,
            measure,
            policy_version: version.filter(|_| by_policy),
        }
    }
}

#[cfg(test)]
mod tests;
