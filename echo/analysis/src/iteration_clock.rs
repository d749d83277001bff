//! Iterations of a job over time, for people to read: no verdict depends on them.

use std::collections::VecDeque;

use echo_core::stats::median;
use echo_core::units::Nanos;

/// Maximum number of marks kept: some hours of blocks of two seconds.
const MAX_MARKS: usize = 4096;

/// Number of the latest stretches.
const LATEST: usize = 8;

/// Healthy time before an instant whose iterations are measured, milliseconds.
const BEFORE_MS: f64 = 60_000.0;

/// Least number of iterations of a stretch.
const WHOLE: f64 = 0.95;

/// Number of iterations that a job had completed at instants.
#[derive(Debug, Clone, Default)]
pub(crate) struct IterationClock {
    marks: VecDeque<(Nanos, f64)>,
}

impl IterationClock {
    /// Adds a mark. Marks that are not later than the last one in both respects are ignored, and a
    /// count that begins again begins a new clock.
    pub(crate) fn note(&mut self, at: Nanos, iterations: f64) {
        if let Some((last, known)) = self.marks.back() {
            if at <= *last || (iterations - *known).abs() < f64::EPSILON {
                return;
            }
            if iterations < *known {
                self.marks.clear();
            }
        }
        self.marks.push_back((at, iterations));
        if self.marks.len() > MAX_MARKS {
            self.marks.pop_front();
        }
    }

    /// Iterations completed at an instant, between and beyond the marks as they are next to it; 0
    /// without two marks.
    pub(crate) fn at(&self, instant: Nanos) -> f64 {
        let after = self.marks.partition_point(|(at, _)| *at < instant);
        let first = after.clamp(1, self.marks.len().max(2) - 1) - 1;
        let Some(((from, begun), (to, ended))) =
            self.marks.get(first).zip(self.marks.get(first + 1))
        else {
            return 0.0;
        };
        let share = instant.millis_since(*from) / to.millis_since(*from);
        (ended - begun).mul_add(share, *begun).max(0.0)
    }

    /// Median duration of an iteration, milliseconds.
    pub(crate) fn usual_ms(&self) -> Option<f64> {
        self.period(|_| true)
    }

    /// Median duration of an iteration in the latest stretches, milliseconds.
    pub(crate) fn latest_ms(&self) -> Option<f64> {
        let stretches = self.stretches();
        let latest = stretches.len().saturating_sub(LATEST);
        let periods = stretches.iter().skip(latest).map(|(_, ms)| *ms);
        median(&periods.collect::<Vec<_>>())
    }

    /// Median duration of an iteration in the minute before an instant, milliseconds.
    pub(crate) fn period_before(&self, instant: Nanos) -> Option<f64> {
        self.period(|at| (0.0..=BEFORE_MS).contains(&instant.millis_since(at)))
    }

    /// Median duration of an iteration from an instant on, milliseconds.
    pub(crate) fn period_since(&self, instant: Nanos) -> Option<f64> {
        self.period(|at| instant < at)
    }

    /// Median duration of an iteration in the stretches whose end is wanted.
    fn period(&self, is_wanted: impl Fn(Nanos) -> bool) -> Option<f64> {
        let stretches = self.stretches().into_iter();
        let wanted = stretches.filter(|(at, _)| is_wanted(*at));
        median(&wanted.map(|(_, ms)| ms).collect::<Vec<_>>())
    }

    /// Ends of stretches of whole iterations, as nearly as the marks allow, with the duration of an
    /// iteration. The operations of an iteration are not spread evenly over it.
    fn stretches(&self) -> Vec<(Nanos, f64)> {
        let mut stretches = Vec::new();
        let Some(&(mut from, mut begun)) = self.marks.front() else {
            return stretches;
        };
        for (at, iterations) in &self.marks {
            let passed = iterations - begun;
            if passed >= WHOLE {
                stretches.push((*at, at.millis_since(from) / passed));
                (from, begun) = (*at, *iterations);
            }
        }
        stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: i64) -> Nanos {
        Nanos::new(1_790_000_000_000_000_000 + seconds * 1_000_000_000)
    }

    /// Ten iterations per second for 100 s, then five.
    fn clock() -> IterationClock {
        let mut clock = IterationClock::default();
        for at in 0..200_i32 {
            let iterations = 10 * at.min(100) + 5 * (at - 100).max(0);
            clock.note(second(i64::from(at)), f64::from(iterations));
        }
        clock
    }

    #[test]
    fn iterations_are_told_between_and_beyond_the_marks() {
        let clock = clock();
        assert!((clock.at(second(50)) - 500.0).abs() < 1e-6);
        assert!((clock.at(second(204)) - 1_520.0).abs() < 1e-6);
        assert!((IterationClock::default().at(second(1))).abs() < 1e-6);
    }

    #[test]
    fn the_duration_of_an_iteration_is_told_before_and_since_an_instant() {
        let clock = clock();
        assert_eq!(clock.period_before(second(100)), Some(100.0));
        assert_eq!(clock.period_since(second(100)), Some(200.0));
        assert_eq!(clock.period_since(second(300)), None);
    }

    #[test]
    fn operations_at_the_end_of_a_long_iteration_do_not_make_it_short() {
        // Iterations of 5 s, with marks in their last second only.
        let mut clock = IterationClock::default();
        for iteration in 0..20_i32 {
            for fifth in 1..=5_i32 {
                let at = 5_000 * i64::from(iteration) + 4_000 + 200 * i64::from(fifth);
                let iterations = f64::from(iteration) + f64::from(fifth) / 5.0;
                clock.note(second(0).offset(1_000_000 * at), iterations);
            }
        }
        assert_eq!(clock.usual_ms(), Some(5_000.0));
    }

    #[test]
    fn a_count_that_begins_again_is_a_new_clock() {
        let mut clock = clock();
        clock.note(second(300), 3.0);
        clock.note(second(301), 13.0);
        assert_eq!(clock.period_before(second(301)), Some(100.0));
    }
}
