//! From what is held to blocks: once it is known what the process repeats, or that this is not to be known soon.

use crate::correlate::{Issued, Observation};
use crate::discover::CommTable;
use crate::iteration_pattern::Rhythm;
use crate::pipeline::pending::Held;
use crate::pipeline::{Pipeline, State};
use crate::policy::Settings;
use crate::rollup::{Rollup, View};

impl Pipeline {
    pub(super) fn try_start(&mut self, issued: Issued) {
        let begins = || self.rhythm.begins_at(issued.at.seq);
        if let State::Learning(held) = &self.state
            && (held.is_full() || begins() && held.exponents(&self.rhythm, self.rule).is_some())
        {
            self.start();
        }
    }

    pub(super) fn start(&mut self) {
        let Some(primary) = self.rhythm.primary() else {
            return;
        };
        let State::Learning(held) = &mut self.state else {
            return;
        };
        let held = std::mem::take(held);
        let mut exponents = held
            .exponents(&self.rhythm, self.rule)
            .unwrap_or_else(|| held.fallback_exponents(primary, self.rule));
        if let Some(chosen) = self.rule.exponent {
            exponents.insert(primary, chosen);
        }
        self.state = State::Rolling(Box::new(Rollup::new(
            primary,
            exponents,
            self.rule.most_ns(),
        )));
        for observation in held.into_observations() {
            self.roll(&observation);
        }
    }

    pub(super) fn roll(&mut self, observation: &Observation) {
        let State::Rolling(rollup) = &mut self.state else {
            return;
        };
        let view = view(&self.table, &self.rhythm, self.settings);
        rollup.observe(observation, view);
        self.points.append(&mut rollup.take_points());
    }

    pub(super) fn flush(&mut self) {
        if matches!(self.state, State::Learning(_)) {
            self.start();
        }
        if let State::Rolling(mut rollup) =
            std::mem::replace(&mut self.state, State::Learning(Held::default()))
        {
            let view = view(&self.table, &self.rhythm, self.settings);
            rollup.finish(view);
            self.closed_blocks += rollup.blocks();
            self.broken_blocks += rollup.broken();
            self.points.append(&mut rollup.take_points());
        }
    }
}

fn view<'a>(table: &'a CommTable, rhythm: &'a Rhythm, settings: Settings) -> View<'a> {
    View {
        comms: table.comms(),
        rhythm,
        sample_mod: settings.sample_mod,
    }
}
