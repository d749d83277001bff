//! Transition from buffered observations to blocks, once the iteration pattern is known or unlikely
//! to be known soon.

use crate::correlate::{Issued, Observation};
use crate::discover::CommTable;
use crate::event::{ActivitySample, DelaySample};
use crate::iteration_pattern::IterationPattern;
use crate::pipeline::pending::PendingObservations;
use crate::pipeline::{Pipeline, State};
use crate::policy::Settings;
use crate::rollup::attribution::Sample;
use crate::rollup::{Rollup, View};

impl Pipeline {
    pub(super) fn try_start(&mut self, issued: Issued) {
        let begins = || self.iteration_pattern.begins_at(issued.at.seq);
        if let State::Learning(pending) = &self.state
            && (pending.is_full()
                || begins()
                    && pending
                        .exponents(&self.iteration_pattern, self.rule)
                        .is_some())
        {
            self.start();
        }
    }

    pub(super) fn start(&mut self) {
        let Some(primary) = self.iteration_pattern.primary() else {
            return;
        };
        let State::Learning(pending) = &mut self.state else {
            return;
        };
        let pending = std::mem::take(pending);
        let mut exponents = pending
            .exponents(&self.iteration_pattern, self.rule)
            .unwrap_or_else(|| pending.fallback_exponents(primary, self.rule));
        if let Some(chosen) = self.rule.exponent {
            exponents.insert(primary, chosen);
        }
        self.state = State::Rolling(Box::new(Rollup::new(
            primary,
            exponents,
            self.rule.max_ns(),
        )));
        for (samples, observation) in pending.into_observations() {
            for sample in samples {
                self.on_sample(sample);
            }
            self.roll(&observation);
        }
    }

    /// Adds activity that the source has summed up.
    pub fn on_activity(&mut self, sample: ActivitySample) {
        self.on_sample(Sample::Activity(sample));
    }

    /// Adds delays that the source has summed up.
    pub fn on_delays(&mut self, sample: &DelaySample) {
        self.on_sample(Sample::Delays(Box::new(sample.clone())));
    }

    fn on_sample(&mut self, sample: Sample) {
        match &mut self.state {
            State::Learning(pending) => pending.push_sample(sample),
            State::Rolling(rollup) => {
                rollup.add_sample(&sample);
                self.points.append(&mut rollup.take_points());
            }
        }
    }

    /// Reports the samples of closed blocks as they are, at the end of the process's events.
    pub(super) fn report_samples(&mut self) {
        if let State::Rolling(rollup) = &mut self.state {
            rollup.report_samples();
            self.points.append(&mut rollup.take_points());
        }
    }

    pub(super) fn roll(&mut self, observation: &Observation) {
        let State::Rolling(rollup) = &mut self.state else {
            return;
        };
        let view = view(&self.table, &self.iteration_pattern, self.settings);
        rollup.observe(observation, view);
        self.points.append(&mut rollup.take_points());
    }

    pub(super) fn flush(&mut self) {
        if matches!(self.state, State::Learning(_)) {
            self.start();
        }
        if let State::Rolling(mut rollup) = std::mem::replace(
            &mut self.state,
            State::Learning(PendingObservations::default()),
        ) {
            let view = view(&self.table, &self.iteration_pattern, self.settings);
            rollup.finish(view);
            self.closed_blocks += rollup.blocks();
            self.broken_blocks += rollup.broken();
            self.points.append(&mut rollup.take_points());
        }
    }
}

fn view<'a>(
    table: &'a CommTable,
    iteration_pattern: &'a IterationPattern,
    settings: Settings,
) -> View<'a> {
    View {
        comms: table.comms(),
        iteration_pattern,
        sample_mod: settings.sample_mod,
    }
}
