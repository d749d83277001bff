//! Healthy baseline: the cohort's own period and the usual scatter of its lags.

use std::collections::{BTreeMap, VecDeque};

use echo_core::ids::{CommId, Op};
use echo_core::model::detector_output::Signal;
use echo_core::stats::{mad, median, quantile, weighted_median};

use crate::assembly::{PeriodReading, Transfer};

/// Maximum number of period readings kept.
const MAX_READINGS: usize = 256;

/// Maximum number of windows whose lags are kept for the scale.
const MAX_WINDOWS: usize = 32;

/// Number of windows before the stored scatter is used: the general number, and the smaller one for
/// cohorts with many lags.
const ENOUGH_WINDOWS: usize = 20;
const LEAST_WINDOWS: usize = 10;
const ENOUGH_LAGS: usize = 40;

/// Number of iterations and readings before the stored period is used.
const ENOUGH_ITERATIONS: f64 = 16.0;
const ENOUGH_READINGS: usize = 2;

/// Maximum number of transfers per kind of collective, maximum number of kinds, and number of
/// transfers before they are used.
const MAX_TRANSFERS: usize = 64;
const MAX_KINDS: usize = 256;
const ENOUGH_TRANSFERS: usize = 4;

/// Number of readings before their scatter is known.
const ENOUGH_FOR_SCATTER: usize = 5;

/// Quantile of healthy transfers taken as the pure transfer time (CCL-D: rolling 10th percentile).
const BASE_QUANTILE: f64 = 0.1;

/// Factor from the median absolute deviation of normal values to their standard deviation.
const MAD_TO_SIGMA: f64 = 1.4826;

/// History of a cohort outside incidents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    periods: VecDeque<(f64, f64)>,
    signal: Option<Signal>,
    lags: VecDeque<Vec<f64>>,
    /// Cached scatter of the lags above: it changes once per window and is read by every
    /// evaluation.
    scatter: Option<Scatter>,
    /// Cached median and scatter of the periods above.
    period: Option<Usual>,
    blocked: VecDeque<f64>,
    transfers: BTreeMap<(CommId, Option<Op>), VecDeque<Times>>,
}

/// Scatter of healthy lags.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scatter {
    /// Standard deviation, milliseconds.
    pub sigma_ms: f64,
    /// Number of lags from which it was estimated.
    pub n_lags: usize,
}

/// Smallest time inside an operation, and the difference between the first and the last rank,
/// milliseconds.
type Times = (f64, f64);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Usual {
    ms: f64,
    sigma_ms: Option<f64>,
}

impl History {
    /// Records a healthy period.
    pub fn record_period(&mut self, reading: &PeriodReading) {
        self.periods.push_back((reading.ms, reading.iterations));
        if self.periods.len() > MAX_READINGS {
            self.periods.pop_front();
        }
        self.period = self.usual_period();
    }

    /// Records a healthy period known from an earlier detector, milliseconds, unless one is known.
    pub fn record_known_period(&mut self, period_ms: f64) {
        if self.period.is_none() {
            self.periods.clear();
            let readings = [(period_ms, ENOUGH_ITERATIONS); ENOUGH_READINGS];
            self.periods.extend(readings);
            self.period = self.usual_period();
        }
    }

    /// Records the blocked time of the ranks in a healthy block, milliseconds per iteration.
    pub fn record_blocked(&mut self, blocked_ms: &[f64]) {
        self.blocked.extend(median(blocked_ms));
        if self.blocked.len() > MAX_READINGS {
            self.blocked.pop_front();
        }
    }

    /// Time that a rank is blocked in a healthy iteration, milliseconds; `None` without
    /// enough data.
    pub fn blocked_ms(&self) -> Option<f64> {
        if self.blocked.len() < ENOUGH_READINGS {
            return None;
        }
        median(&self.blocked.iter().copied().collect::<Vec<_>>())
    }

    /// Records the lags of one healthy window, milliseconds; windows must not overlap. If the
    /// signal has changed, lags have another scale, so the earlier ones are dropped.
    pub fn record_lags(&mut self, signal: Signal, lags: Vec<f64>) {
        if self.signal != Some(signal) {
            self.signal = Some(signal);
            self.lags.clear();
            self.scatter = None;
        }
        self.lags.push_back(lags);
        if self.lags.len() > MAX_WINDOWS {
            self.lags.pop_front();
        }
        let n_lags: usize = self.lags.iter().map(Vec::len).sum();
        let n_windows = self.lags.len();
        if n_windows >= ENOUGH_WINDOWS || (n_windows >= LEAST_WINDOWS && n_lags >= ENOUGH_LAGS) {
            let pooled: Vec<f64> = self.lags.iter().flatten().copied().collect();
            self.scatter = mad(&pooled).map(|deviation| Scatter {
                sigma_ms: deviation * MAD_TO_SIGMA,
                n_lags,
            });
        }
    }

    /// Records the shortest time of a healthy transfer, and the usual difference between its ranks.
    pub fn record_transfer(&mut self, transfer: &Transfer) {
        let key = (transfer.comm, transfer.op.clone());
        if self.transfers.len() >= MAX_KINDS && !self.transfers.contains_key(&key) {
            return;
        }
        if let Some((least, most)) = transfer.extremes_ms() {
            let known = self.transfers.entry(key).or_default();
            known.push_back((least, most - least));
            if known.len() > MAX_TRANSFERS {
                known.pop_front();
            }
        }
    }

    /// Duration of the pure transfer of an operation, and the usual difference between the first
    /// and the last rank, milliseconds; `None` without enough data.
    pub fn transfer_ms(&self, comm: CommId, op: Option<&Op>) -> Option<(f64, f64)> {
        let known = self.transfers.get(&(comm, op.cloned()))?;
        if known.len() < ENOUGH_TRANSFERS {
            return None;
        }
        let (bases, skews): (Vec<f64>, Vec<f64>) = known.iter().copied().unzip();
        Some((quantile(&bases, BASE_QUANTILE)?, median(&skews)?))
    }

    /// Median healthy period, milliseconds; `None` without enough data.
    pub fn period_ms(&self) -> Option<f64> {
        self.period.map(|usual| usual.ms)
    }

    /// Standard deviation of single healthy readings of the period, milliseconds; `None` without
    /// enough data.
    pub fn period_sigma_ms(&self) -> Option<f64> {
        self.period?.sigma_ms
    }

    fn usual_period(&self) -> Option<Usual> {
        let iterations: f64 = self.periods.iter().map(|(_, iterations)| iterations).sum();
        if self.periods.len() < ENOUGH_READINGS || iterations < ENOUGH_ITERATIONS {
            return None;
        }
        let readings: Vec<(f64, f64)> = self.periods.iter().copied().collect();
        let ms = weighted_median(&readings)?;
        let off: Vec<f64> = readings
            .iter()
            .map(|(reading, _)| (reading - ms).abs())
            .collect();
        let scatter = (off.len() >= ENOUGH_FOR_SCATTER)
            .then(|| median(&off))
            .flatten();
        Some(Usual {
            ms,
            sigma_ms: scatter.map(|scatter| scatter * MAD_TO_SIGMA),
        })
    }

    /// Scatter of healthy lags; `None` without enough data. Unlike a formula for independent noise
    /// it includes drift, correlation, and small constant offsets.
    pub fn scatter(&self, signal: Signal) -> Option<Scatter> {
        self.scatter.filter(|_| self.signal == Some(signal))
    }
}

#[cfg(test)]
mod tests {
    use echo_core::model::detector_output::Signal;
    use echo_core::units::{Nanos, Window};

    use super::History;
    use crate::assembly::PeriodReading;

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
        history.record_period(&reading(45.0, 10.0));
        assert_eq!(history.period_ms(), None);
        history.record_period(&reading(46.0, 10.0));
        assert_eq!(history.period_ms(), Some(45.0));
    }

    #[test]
    fn slow_first_iterations_do_not_move_the_baseline() {
        let mut history = History::default();
        history.record_period(&reading(900.0, 1.0));
        for _ in 0..5 {
            history.record_period(&reading(45.8, 4.0));
        }
        assert_eq!(history.period_ms(), Some(45.8));
    }

    #[test]
    fn history_stays_bounded() {
        let mut history = History::default();
        for _ in 0..1_000 {
            history.record_period(&reading(45.8, 4.0));
            history.record_lags(Signal::HostGap, vec![0.1, -0.1]);
        }
        assert_eq!((history.periods.len(), history.lags.len()), (256, 32));
        assert!(history.scatter(Signal::HostGap).is_some());
        assert!(history.scatter(Signal::Arrival).is_none());
    }
}
