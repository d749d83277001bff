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

use crate::classify::history::Past;
use crate::classify::reference::{Adopted, Reading, Standard};
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
    adopted: Option<Adopted>,
    window: Window,
    past: Past,
    straggling: Option<Mode>,
    in_a_row: u32,
    tallies: BTreeMap<Mode, Tally>,
}

impl Classifier {
    /// Takes the entry of the process's cohort in a policy set, seen at `now_ns` of the host's wall clock. An entry
    /// that is known already changes nothing.
    pub fn learn(
        &mut self,
        set_version: u64,
        computed_ns: u64,
        policy: &CohortPolicy,
        now_ns: u64,
    ) {
        let entry = (set_version, computed_ns, policy);
        self.adopted = Some(Adopted::after(self.adopted.take(), entry, now_ns));
    }

    /// Tells which cohort the process belongs to now. Nothing that was asked of another one holds any longer.
    pub fn belong(&mut self, cohort: Option<&str>) {
        self.adopted = self.adopted.take().filter(|known| known.is_of(cohort));
    }

    /// Takes the duration of one iteration, milliseconds.
    pub fn period(&mut self, period_ms: f64) {
        self.past.period(period_ms);
    }

    /// Judges the host gaps of one block that ended at `time_ns` of the host's wall clock; the verdict if it changed.
    /// Blocks of little more than an iteration are judged together with the next one.
    pub fn judge(&mut self, block: &Block, gaps: &Summary, time_ns: u64) -> Option<SelfVerdict> {
        let (block, gaps) = self.window.add(block, gaps)?;
        self.past.begin(&block);
        let gap_ms = self
            .past
            .gap_ms(&gaps, block.iterations?, MIN_GAPS_PER_ITERATION)?;
        let (mode, standard) = self.standard(time_ns);
        let measure = standard.map(|standard| standard.measure(gap_ms));
        let reading = standard.map_or(Reading::Calm, |standard| standard.read(gap_ms));
        if reading != Reading::Late && self.straggling.is_none() {
            self.past.healthy(gap_ms);
        }
        let state = self.advance(reading, mode);
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

    fn standard(&self, time_ns: u64) -> (Mode, Option<Standard>) {
        let period_ms = self.past.period_ms();
        if let Some(adopted) = &self.adopted {
            // The cohort itself is not judged by its gaps, so the own past of gaps says nothing either.
            if !adopted.is_about_gaps() {
                return (Mode::None, None);
            }
            let mode = adopted.mode(time_ns);
            if let Some(standard) = mode.and_then(|_| adopted.standard(period_ms)) {
                return (mode.unwrap_or(Mode::None), Some(standard));
            }
        }
        let gates = self.adopted.as_ref().and_then(Adopted::gates);
        match self.past.standard(gates.unwrap_or_default()) {
            Some(standard) => (Mode::Local, Some(standard)),
            None => (Mode::None, None),
        }
    }

    /// Moves the verdict by one block; what of it is news.
    fn advance(&mut self, reading: Reading, mode: Mode) -> Option<State> {
        let (counted, enough) = match self.straggling {
            None => (Reading::Late, RAISE_AFTER),
            Some(_) => (Reading::Calm, CLEAR_AFTER),
        };
        self.in_a_row = if reading == counted {
            self.in_a_row + 1
        } else {
            0
        };
        if self.in_a_row >= enough {
            self.in_a_row = 0;
            let cleared = self.straggling.take();
            if cleared.is_some() {
                return Some(State::Cleared);
            }
            self.straggling = Some(mode);
            return Some(State::Raised);
        }
        let told = self.straggling.as_mut().filter(|told| **told != mode)?;
        *told = mode;
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
        let version = self.adopted.as_ref().map(Adopted::set_version);
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
