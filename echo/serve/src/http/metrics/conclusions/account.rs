//! What a cluster lost, as counters that never fall.
//!
//! Losses are corrected while their incident is judged, and what comes late is added to the past. So the last minutes
//! are asked for again each time; what lies further back is closed, five minutes at a time, and asked for no more. A
//! counter shows the most that it ever came to. It begins at zero when a cluster is seen for the first time after a
//! start, as Prometheus expects of counters, and again goes on from where it was after a pause of an hour.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::units::Nanos;
use echo_tools::get_cost::answer::Cost;

/// Length of a piece that is closed.
const STEP: Duration = Duration::from_mins(5);

/// How long ago a piece has to have ended. What comes later than that is in the answers of `get_cost` and not in the
/// counters. The run rate looks back on five minutes, which have to lie in what is not closed.
const SETTLED: Duration = Duration::from_mins(7);

/// A longer pause is not made up for.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counted {
    /// GPU-seconds from each rank's first to its last event.
    Allocated,
    /// GPU-seconds lost.
    Lost,
    /// Money lost.
    Money {
        /// How the GPUs are paid for.
        rate_class: &'static str,
        /// In which currency.
        currency: String,
    },
}

/// How much of each.
pub(super) type Totals = BTreeMap<Counted, f64>;

/// The account of one cluster.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// What lies before is closed.
    open_from: Option<Nanos>,
    closed: Totals,
    shown: Totals,
    asked_at: Option<Nanos>,
    latest: Option<(Nanos, Cost)>,
}

/// A piece of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// First instant inside.
    pub(super) from: Nanos,
    /// First instant after.
    pub(super) to: Nanos,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Is asked for the last time.
    Closing,
    /// Reaches up to now.
    Present,
    /// The same, of an account that begins, or begins again.
    First,
}

impl Piece {
    /// Whether it reaches up to now.
    pub(super) const fn is_present(self) -> bool {
        !matches!(self.kind, Kind::Closing)
    }
}

impl Account {
    /// What to ask about next.
    pub(super) fn next(&mut self, now: Nanos) -> Piece {
        self.asked_at = Some(now);
        let settled = now.before(SETTLED);
        let goes_on = |from: &Nanos| *from < now && now.before(LONGEST_PAUSE) <= *from;
        match self.open_from.filter(goes_on) {
            None => Piece {
                from: settled,
                to: now,
                kind: Kind::First,
            },
            Some(from) if from <= settled.before(STEP) => Piece {
                from,
                to: from.after(STEP),
                kind: Kind::Closing,
            },
            Some(from) => Piece {
                from,
                to: now,
                kind: Kind::Present,
            },
        }
    }

    /// Takes what was answered about a piece.
    pub(super) fn take(&mut self, piece: Piece, cost: Cost) {
        let totals = totals(&cost);
        match piece.kind {
            Kind::Closing => {
                add(&mut self.closed, &totals, 1.0);
                self.open_from = Some(piece.to);
                return;
            }
            Kind::First => {
                self.closed.clone_from(&self.shown);
                add(&mut self.closed, &totals, -1.0);
                self.open_from = Some(piece.from);
            }
            Kind::Present => {}
        }
        let mut reached = self.closed.clone();
        add(&mut reached, &totals, 1.0);
        for (counted, total) in reached {
            let shown = self.shown.entry(counted).or_default();
            *shown = shown.max(total);
        }
        self.latest = Some((piece.to, cost));
    }

    /// When it was last asked for, whatever came of it.
    pub(super) const fn looked_at(&self) -> Option<Nanos> {
        self.asked_at
    }

    /// Everything that was ever counted.
    pub(super) const fn shown(&self) -> &Totals {
        &self.shown
    }

    /// The last answer about the present, and its instant.
    pub(super) fn latest(&self) -> Option<(Nanos, &Cost)> {
        self.latest.as_ref().map(|(at, cost)| (*at, cost))
    }
}

/// Whether asking can tell anything of a cluster whose last event is this.
pub(super) fn is_worth_a_look(last_event: Option<Nanos>, now: Nanos) -> bool {
    last_event.is_some_and(|last| last >= now.before(SETTLED))
}

fn add(totals: &mut Totals, more: &Totals, sign: f64) {
    for (counted, amount) in more {
        *totals.entry(counted.clone()).or_default() += sign * amount;
    }
}

fn totals(cost: &Cost) -> Totals {
    const SECONDS: f64 = 3_600.0;
    let mut totals = Totals::from([
        (Counted::Allocated, cost.allocated_gpu_hours * SECONDS),
        (Counted::Lost, cost.lost_gpu_hours * SECONDS),
    ]);
    for row in &cost.by_rate_class {
        let money = row.rate_class.zip(row.amount.currency.clone());
        if let Some(((rate_class, currency), amount)) = money.zip(row.amount.cost) {
            let counted = Counted::Money {
                rate_class,
                currency,
            };
            *totals.entry(counted).or_default() += amount;
        }
    }
    totals
}
