//! What a cluster lost, as counters that never fall.
//!
//! Losses are corrected while their incident is judged, and what comes late is added to the past. So the last minutes
//! are read again each time; what lies further back is closed, five minutes at a time, and read no more. A counter shows
//! the most that it ever came to. It begins at zero when a cluster is seen for the first time after a start, as Prometheus
//! expects of counters, and goes on from where it was after a pause of an hour.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::units::{Nanos, Window};
use echo_tools::get_cost::by_cluster::ClusterLoss;
use echo_tools::rates::{Currency, RateClass};

/// Length of a piece that is closed.
const STEP: Duration = Duration::from_mins(5);

/// How long ago a piece has to have ended. What comes later than that is in the answers of `get_cost` and not in the
/// counters. The run rate looks back on five minutes, which have to lie in what is not closed.
const SETTLED: Duration = Duration::from_mins(7);

/// A longer pause is not made up for.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counted {
    /// GPU-seconds from each rank's first to its last event.
    Allocated,
    /// GPU-seconds lost.
    Lost,
    /// Money lost, by how the GPUs are paid for.
    Money(RateClass, Currency),
}

/// How much of each.
pub(super) type Totals = BTreeMap<Counted, f64>;

/// The counters of one cluster.
#[derive(Debug, Default)]
pub(super) struct Counters {
    closed: Totals,
    shown: Totals,
}

/// The pieces of time that one reading is about. They follow one another, and the last reaches up to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pieces {
    /// Are read for the last time.
    pub(super) closing: Vec<Window>,
    /// Stays open. Nothing when the clock stands at the beginning of time.
    pub(super) open: Option<Window>,
    /// Whether nothing connects it with the reading before.
    pub(super) is_first: bool,
}

impl Pieces {
    /// `open_from` is where the open piece of the reading before begins.
    pub(super) fn of(open_from: Option<Nanos>, now: Nanos) -> Self {
        let settled = now.before(SETTLED);
        let goes_on = |from: &Nanos| *from < now && now.before(LONGEST_PAUSE) <= *from;
        let open_from = open_from.filter(goes_on);
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
    /// Begins, or goes on from what is shown, with a piece that is open.
    pub(super) fn begin(&mut self, open: &Totals) {
        self.closed.clone_from(&self.shown);
        add(&mut self.closed, open, -1.0);
    }

    /// Adds a piece that is read no more.
    pub(super) fn close(&mut self, piece: &Totals) {
        add(&mut self.closed, piece, 1.0);
    }

    /// Shows what is reached with the piece that is open.
    pub(super) fn reach(&mut self, open: &Totals) {
        let mut reached = self.closed.clone();
        add(&mut reached, open, 1.0);
        for (counted, total) in reached {
            let shown = self.shown.entry(counted).or_default();
            *shown = shown.max(total);
        }
    }

    /// Everything that was ever counted.
    pub(super) const fn shown(&self) -> &Totals {
        &self.shown
    }
}

/// What is counted of a piece.
pub(super) fn totals(loss: &ClusterLoss) -> Totals {
    const SECONDS: f64 = 3_600.0;
    let money = loss.money.iter();
    let money = money.map(|((class, currency), sum)| (Counted::Money(*class, *currency), *sum));
    let mut totals: Totals = money.collect();
    totals.insert(Counted::Allocated, loss.allocated.hours() * SECONDS);
    totals.insert(Counted::Lost, loss.lost.hours() * SECONDS);
    totals
}

fn add(totals: &mut Totals, more: &Totals, sign: f64) {
    for (counted, amount) in more {
        *totals.entry(*counted).or_default() += sign * amount;
    }
}
