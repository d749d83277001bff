//! Priced losses, and sums over them.
//!
//! A bill is a list of items, each rounded once, to a trillionth. Every total is a sum of items, so
//! totals agree however the items are grouped, and is rounded to a millionth for display.
//! Currencies are never mixed in one sum.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use echo_analysis::cost::{Loss, losses};
use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{Incident, LostTime};
use echo_core::units::{GpuTime, Nanos, Window};
use rust_decimal::Decimal;

use super::answer::Amount;
use crate::lifecycle::is_lower_bound;
use crate::rates::{Currency, Gpu, MONEY_PLACES, Rate, Rates};

/// Lost time with its price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineItem<'a> {
    /// Lost time.
    pub(super) loss: Loss,
    /// Rate; `None` when the GPU has no price.
    pub(super) rate: Option<&'a Rate>,
    cost: Decimal,
}

/// Sum of items in one currency, or of items without a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    /// GPU time lost.
    pub(super) time: GpuTime,
    /// Money; zero for items without a price, whose currency is absent.
    pub(super) cost: Decimal,
}

/// Priced losses of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bill<'a> {
    items: Vec<LineItem<'a>>,
}

impl<'a> Bill<'a> {
    /// Prices the lost time of a window.
    pub(super) fn new(rows: &[LostTime], window: Window, rates: &'a Rates) -> Self {
        let mut prices_from: Vec<Nanos> = vec![window.from()];
        prices_from.extend(rates.change_points(window));
        let priced = losses(rows, &prices_from).into_iter().map(|loss| {
            let gpu = Gpu {
                cluster: &loss.cluster,
                node: &loss.node,
                model: loss.gpu_model.as_deref(),
            };
            let rate = rates.rate(&gpu, loss.priced_at);
            let cost = rate.map_or(Decimal::ZERO, |rate| rate.cost(loss.time));
            LineItem { loss, rate, cost }
        });
        Self {
            items: priced.collect(),
        }
    }

    /// GPU time of all items.
    pub(super) fn time(&self) -> GpuTime {
        self.items.iter().map(|item| item.loss.time).sum()
    }

    /// Returns true if the loss of an incident of the bill is a lower bound.
    pub(super) fn has_lower_bound(&self, incidents: &BTreeMap<IncidentId, Incident>) -> bool {
        let mut items = self.items.iter();
        items.any(|item| {
            let incident = incidents.get(&item.loss.incident);
            incident.is_some_and(is_lower_bound)
        })
    }

    /// Sums by currency; the key `None` holds the GPU time without a price.
    pub(super) fn by_currency(&self) -> BTreeMap<Option<Currency>, Sum> {
        let sums = self.sum_by(|_| ()).into_iter();
        sums.map(|(((), currency), sum)| (currency, sum)).collect()
    }

    /// Sums by any key and currency.
    pub(super) fn sum_by<K: Ord>(
        &self,
        key: impl Fn(&LineItem<'a>) -> K,
    ) -> BTreeMap<(K, Option<Currency>), Sum> {
        let mut sums: BTreeMap<(K, Option<Currency>), Sum> = BTreeMap::new();
        for item in &self.items {
            let currency = item.rate.map(|rate| rate.currency);
            let sum = sums.entry((key(item), currency)).or_default();
            sum.time = sum.time + item.loss.time;
            sum.cost += item.cost;
        }
        sums
    }
}

/// Rounds money and converts it to the nearest double.
pub(super) fn money(amount: Decimal) -> f64 {
    let shown = amount.round_dp(MONEY_PLACES).normalize();
    // A decimal prints as digits only, which always parse.
    shown.to_string().parse().unwrap_or(f64::NAN)
}

/// Sums by lost time, largest first; ties by key.
pub(super) fn largest_first<K: Ord>(sums: BTreeMap<K, Sum>) -> impl Iterator<Item = (K, Sum)> {
    let mut sums: Vec<(K, Sum)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse(sum.time));
    sums.into_iter()
}

/// Converts a sum for the answer.
pub(super) fn amount(currency: Option<Currency>, sum: Sum) -> Amount {
    Amount {
        lost_gpu_hours: sum.time.hours(),
        currency: currency.map(|currency| currency.to_string()),
        cost: currency.map(|_| money(sum.cost)),
    }
}

#[cfg(test)]
mod tests;
