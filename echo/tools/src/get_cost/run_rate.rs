//! Run rate: the loss per hour, from the most recent events.

use std::collections::BTreeMap;

use echo_analysis::cost::within;
use echo_core::model::detector_output::LostTime;
use echo_core::units::{MILLIS_PER_HOUR, Nanos, Window};

use super::bill::{Bill, LineItem, Sum, money};
use crate::quality::Presence;
use crate::rates::Currency;
use crate::{Limits, ToolContext};

/// Most recent part of a window that has events.
pub(super) struct RunRateHorizon {
    /// Time of the last event.
    pub(super) as_of: Nanos,
    /// Span from which the run rate is computed.
    pub(super) window: Window,
    seen_ms: f64,
    is_covered: bool,
    /// GPUs that reported in it.
    n_gpus: f64,
}

impl RunRateHorizon {
    /// Finds the horizon of a window; `None` without events. The horizon ends with the last event,
    /// so a rank reported in it exactly when its last event lies in it.
    pub(super) fn from_presence(
        presence: &Presence,
        window: Window,
        limits: &Limits,
    ) -> Option<Self> {
        let (first, last) = presence.span()?;
        let back = i64::try_from(limits.horizon.as_nanos()).unwrap_or(i64::MAX);
        // The instant after the last event is the first without data.
        let end = window.to().min(last.offset(1));
        let start = end.offset(-back).max(first).max(window.from());
        let horizon = Window::new(start, end)?;
        let recent = presence.since(start);
        let coverage = recent.coverage();
        let seen_ms = horizon.millis() - recent.clock_skew_ms();
        let has_length = seen_ms >= 1.0;
        Some(Self {
            as_of: last,
            window: horizon,
            seen_ms,
            n_gpus: recent.ranks().map(|_| 1.0).sum(),
            is_covered: has_length && coverage.is_some_and(|share| share >= limits.min_coverage),
        })
    }

    /// True when the last event is too long before the end of the window, or before now if that is
    /// earlier.
    pub(super) fn is_stale(&self, context: &ToolContext, window: Window) -> bool {
        let end = window.to().min(context.clock.now());
        end.millis_since(self.as_of) > context.limits.stale_after.as_secs_f64() * 1e3
    }

    /// Computes the loss per hour within the horizon; `None` when too few ranks reported in it. At
    /// most all GPUs are lost: clocks differ, and a hang is judged up to a later instant than the
    /// last event.
    pub(super) fn run_rate<'a>(
        &self,
        context: &'a ToolContext,
        rows: &[LostTime],
    ) -> Option<RunRate<'a>> {
        let mut lost = within(rows, self.window);
        // Scale before pricing, so that rounding to a millionth is not scaled with it.
        for row in &mut lost {
            row.lost_gpu_ms *= MILLIS_PER_HOUR / self.seen_ms;
        }
        self.is_covered.then(|| {
            let mut per_hour = Bill::new(&lost, self.window, &context.rates);
            let n_lost = per_hour.time().hours();
            if n_lost > self.n_gpus {
                for row in &mut lost {
                    row.lost_gpu_ms *= self.n_gpus / n_lost;
                }
                per_hour = Bill::new(&lost, self.window, &context.rates);
            }
            RunRate { per_hour }
        })
    }
}

/// Loss per hour if the horizon continues.
pub(super) struct RunRate<'a> {
    per_hour: Bill<'a>,
}

impl<'a> RunRate<'a> {
    /// Loss per hour by any key and currency.
    pub(super) fn sum_by<K: Ord>(
        &self,
        key: impl Fn(&LineItem<'a>) -> K,
    ) -> BTreeMap<(K, Option<Currency>), Sum> {
        self.per_hour.sum_by(key)
    }

    /// GPU-hours lost per hour.
    pub(super) fn gpu_hours_per_hour(&self) -> f64 {
        self.per_hour.time().hours()
    }

    /// Money lost per hour; `None` when none of the losses has a price.
    pub(super) fn per_hour(&self, currency: Currency) -> Option<f64> {
        let sums = self.per_hour.by_currency();
        match sums.get(&Some(currency)) {
            Some(sum) => Some(money(sum.cost)),
            None => (!sums.contains_key(&None)).then_some(0.0),
        }
    }
}
