//! What healthy looks like: the cohort's own period and the usual scatter of its lags.

use std::collections::VecDeque;

use crate::analysis::assembly::PeriodReading;
use crate::stats::{mad, weighted_median};

/// Period readings remembered.
const MAX_READINGS: usize = 256;

/// Windows whose lags are remembered for the scale.
const MAX_WINDOWS: usize = 32;

/// Windows that it takes before the remembered scatter is trusted.
const ENOUGH_WINDOWS: usize = 20;

/// Iterations and readings that it takes before the remembered period is trusted.
const ENOUGH_ITERATIONS: f64 = 16.0;
const ENOUGH_READINGS: usize = 2;

/// Makes a median absolute deviation of many normal values a standard deviation.
const MAD_TO_SIGMA: f64 = 1.4826;

/// History of a cohort outside incidents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    periods: VecDeque<(f64, f64)>,
    lags: VecDeque<Vec<f64>>,
    /// Of the lags above: it changes once per window and is asked for at every judgement.
    sigma_ms: Option<f64>,
}

impl History {
    /// Remembers a healthy period.
    pub fn remember_period(&mut self, reading: &PeriodReading) {
        self.periods.push_back((reading.ms, reading.iterations));
        if self.periods.len() > MAX_READINGS {
            self.periods.pop_front();
        }
    }

    /// Remembers the lags of one healthy window, milliseconds; windows must not overlap.
    pub fn remember_lags(&mut self, lags: Vec<f64>) {
        self.lags.push_back(lags);
        if self.lags.len() > MAX_WINDOWS {
            self.lags.pop_front();
        }
        if self.lags.len() >= ENOUGH_WINDOWS {
            let pooled: Vec<f64> = self.lags.iter().flatten().copied().collect();
            self.sigma_ms = mad(&pooled).map(|deviation| deviation * MAD_TO_SIGMA);
        }
    }

    /// Median healthy period, milliseconds; nothing before enough was seen.
    pub fn period_ms(&self) -> Option<f64> {
        let iterations: f64 = self.periods.iter().map(|(_, iterations)| iterations).sum();
        let enough = self.periods.len() >= ENOUGH_READINGS && iterations >= ENOUGH_ITERATIONS;
        let readings: Vec<(f64, f64)> = self.periods.iter().copied().collect();
        enough.then(|| weighted_median(&readings)).flatten()
    }

    /// Standard deviation of healthy lags, milliseconds; nothing before enough was seen. Unlike a formula for
    /// independent noise it holds what ranks are used to: drift, correlation, and constant small offsets.
    pub const fn sigma_ms(&self) -> Option<f64> {
        self.sigma_ms
    }
}

#[cfg(test)]
mod tests {
    use super::History;
    use crate::analysis::assembly::PeriodReading;
    use crate::units::{Nanos, Window};

    fn reading(ms: f64, iterations: f64) -> PeriodReading {
        let interval = Window::new(Nanos::new(0), Nanos::new(1)).unwrap();
        PeriodReading {
            ms,
            iterations,
            interval,
        }
    }

    #[test]
    fn a_few_iterations_are_no_baseline() {
        let mut history = History::default();
        history.remember_period(&reading(45.0, 10.0));
        assert_eq!(history.period_ms(), None);
        history.remember_period(&reading(46.0, 10.0));
        assert_eq!(history.period_ms(), Some(45.0));
    }

    #[test]
    fn slow_first_iterations_do_not_move_the_baseline() {
        let mut history = History::default();
        history.remember_period(&reading(900.0, 1.0));
        for _ in 0..5 {
            history.remember_period(&reading(45.8, 4.0));
        }
        assert_eq!(history.period_ms(), Some(45.8));
    }

    #[test]
    fn history_stays_bounded() {
        let mut history = History::default();
        for _ in 0..1_000 {
            history.remember_period(&reading(45.8, 4.0));
            history.remember_lags(vec![0.1, -0.1]);
        }
        assert_eq!((history.periods.len(), history.lags.len()), (256, 32));
        assert!(history.sigma_ms().is_some());
    }
}
