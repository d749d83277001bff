//! Self-judgement of a process between two policies, and while the collector is unreachable. Pure.
//!
//! Only host gaps are judged: arrivals mean nothing without peers. A block is compared with the
//! cohort's center from the last policy (`fleet`; `stale` once that has expired), else with the
//! process's own healthy history (`local`), else with nothing (`none`). Two late blocks in a row
//! raise the verdict, three blocks on time clear it; so does a verdict that no reference supports
//! any longer.

mod history;
mod reference;
mod window;

use std::collections::BTreeMap;

use fleet_proto::policy::CohortPolicy;

use crate::classify::history::History;
use crate::classify::reference::{AdoptedPolicy, Lateness, PolicyEntry, Reference};
use crate::classify::window::Window;
use crate::signal::{Block, Summary};
use crate::verdict::{Mode, SelfVerdict, State, Tally};

/// Number of late blocks in a row that raise the verdict, as in the collector.
const RAISE_AFTER: u32 = 2;
/// Number of blocks on time in a row that clear it.
const CLEAR_AFTER: u32 = 3;
/// Minimum number of gaps per iteration, as in the collector: a job that synchronizes less often is
/// not judged by its gaps.
const MIN_GAPS_PER_ITERATION: f64 = 0.5;

/// Classifier of one process.
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
    /// Sets the policy of the process's cohort, received at `now_ns` of the host's wall clock. A
    /// policy that is already known changes nothing.
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

    /// Sets the cohort of the process. The policy of another cohort is discarded.
    pub fn set_cohort(&mut self, cohort: Option<&str>) {
        self.adopted = self.adopted.take().filter(|known| known.is_for(cohort));
    }

    /// Records the duration of one iteration, milliseconds.
    pub fn record_period(&mut self, period_ms: f64) {
        self.history.record_period(period_ms);
    }

    /// Judges the host gaps of one block that ended at `time_ns` of the host's wall clock and
    /// returns the verdict if it changed. Blocks of little more than an iteration are judged
    /// together with the next one.
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
        let policy_version = self.policy_version(mode);
        state.map(|state| SelfVerdict {
            time_ns,
            block,
            state,
            mode,
            measure,
            policy_version,
        })
    }

    /// Returns the tallies so far, by mode.
    pub fn tallies(&self) -> &BTreeMap<Mode, Tally> {
        &self.tallies
    }

    fn reference(&self, time_ns: u64) -> (Mode, Option<Reference>) {
        let period_ms = self.history.period_ms();
        if let Some(adopted) = &self.adopted {
            // The cohort is not judged by its gaps, so the own history of gaps is no reference
            // either.
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

    /// Advances the verdict by one block and returns the new state if it changed.
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

    /// Returns the version of the policy set that a verdict of this mode is based on.
    fn policy_version(&self, mode: Mode) -> Option<u64> {
        let by_policy = matches!(mode, Mode::Fleet | Mode::Stale);
        let version = self.adopted.as_ref().map(AdoptedPolicy::set_version);
        version.filter(|_| by_policy)
    }
}

#[cfg(test)]
mod tests;
