//! Losses of a cluster as monotonic counters.
//!
//! Losses are corrected while their incident is open, and late events change the past. So the last
//! minutes are read again on each scrape; older intervals of five minutes are closed and not read
//! again. A counter reports its maximum so far. It starts at zero when a cluster is first seen
//! after a start, as Prometheus expects, and continues from its last value after a pause of an
//! hour.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::units::{Nanos, Window};
use echo_tools::get_cost::by_cluster::ClusterLoss;
use echo_tools::rates::{Currency, RateClass};

/// Length of a closed interval.
const STEP: Duration = Duration::from_mins(5);

/// Age at which an interval is closed. Later events appear in answers of `get_cost` but not in the
/// counters. The run rate covers five minutes, which must lie in the open interval.
const SETTLED: Duration = Duration::from_mins(7);

/// Longest pause whose losses are still counted.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// Quantity of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quantity {
    /// GPU-seconds from each rank's first to its last event.
    Allocated,
    /// GPU-seconds lost.
    Lost,
    /// Money lost, by rate class and currency.
    Money(RateClass, Currency),
}

/// Amount of each quantity.
pub(super) type Totals = BTreeMap<Quantity, f64>;

/// The counters of one cluster.
#[derive(Debug, Default)]
pub(super) struct Counters {
    closed: Totals,
    reported: Totals,
}

/// Intervals that one snapshot reads. They are adjacent, and the last one ends now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Intervals {
    /// Intervals read for the last time.
    pub(super) closing: Vec<Window>,
    /// Interval that stays open; `None` if the clock is at the start of time.
    pub(super) open: Option<Window>,
    /// Whether they do not continue those of the previous snapshot.
    pub(super) is_first: bool,
}

impl Intervals {
    /// Computes the intervals. `open_from` is the start of the open interval of the previous
    /// snapshot.
    pub(super) fn new(open_from: Option<Nanos>, now: Nanos) -> Self {
        let settled = now.before(SETTLED);
        let is_continuous = |from: &Nanos| *from < now && now.before(LONGEST_PAUSE) <= *from;
        let open_from = open_from.filter(is_continuous);
        let mut from = open_from.unwrap_or(settled);
        let mut closing = Vec::new();
        while from <= settled.before(STEP) {
            closing.extend(Window::new(from, from.after(STEP)));
            from = from.after(STEP);
        }
        Self {
            closing,
            open: Window::new(from, now),
            is_first: open_from.is_none(),
        }
    }
}

impl Counters {
    /// Starts, or continues from the reported values, with an open interval.
    pub(super) fn begin(&mut self, open: &Totals) {
        self.closed.clone_from(&self.reported);
        add(&mut self.closed, open, -1.0);
    }

    /// Adds an interval that is not read again.
    pub(super) fn close(&mut self, interval: &Totals) {
        add(&mut self.closed, interval, 1.0);
    }

    /// Updates the reported values with the open interval.
    pub(super) fn report(&mut self, open: &Totals) {
        let mut reached = self.closed.clone();
        add(&mut reached, open, 1.0);
        for (counted, total) in reached {
            let reported = self.reported.entry(counted).or_default();
            *reported = reported.max(total);
        }
    }

    /// Returns the reported values.
    pub(super) const fn values(&self) -> &Totals {
        &self.reported
    }
}

/// Returns the quantities lost in an interval.
pub(super) fn totals(loss: &ClusterLoss) -> Totals {
    const SECONDS: f64 = 3_600.0;
    let money = loss.money.iter();
    let money = money.map(|((class, currency), sum)| (Quantity::Money(*class, *currency), *sum));
    let mut totals: Totals = money.collect();
    totals.insert(Quantity::Allocated, loss.allocated.hours() * SECONDS);
    totals.insert(Quantity::Lost, loss.lost.hours() * SECONDS);
    totals
}

fn add(totals: &mut Totals, more: &Totals, sign: f64) {
    for (counted, amount) in more {
        *totals.entry(*counted).or_default() += sign * amount;
    }
}
