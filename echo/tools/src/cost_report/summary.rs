//! Sums of a report.

use std::collections::BTreeMap;

use echo_core::ids::ClusterId;
use echo_core::model::cost::NodeSum;
use echo_core::units::GpuTime;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::cost_report::cell::Cell;
use crate::cost_report::focus::{PricedRow, UNPRICED};
use crate::cost_report::{Report, ReportRow};
use crate::rates::{Currency, Gpu, Rate, RateClass, Rates};

/// GPU time of a cluster at one price, and the ranks that reported it.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    allocated: GpuTime,
    lost: GpuTime,
    ranks_reporting: u64,
    ranks_expected: u64,
}

/// Usage of a cluster at one price; without a rate there is no price.
#[derive(Debug, Clone, Copy)]
struct Priced<'a> {
    cluster: &'a ClusterId,
    rate: Option<&'a Rate>,
    usage: Usage,
}

/// Class, currency and amount of a price.
type Price = (RateClass, Currency, Decimal);

/// Sum of a cluster in one rate class and currency.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    usage: Usage,
    cost: Option<Decimal>,
    lost_cost: Option<Decimal>,
}

impl Report {
    /// Sums by cluster, rate class and currency. Currencies are never mixed in one sum.
    pub(super) fn summary(&self, rates: &Rates) -> Vec<Value> {
        let of_rows = self.rows.iter().map(|row| of_row(row, rates));
        let of_sums = self.sums.iter().map(|sum| of_sum(sum, rates));
        // Usage at one price is priced as a whole, so that the sums are the same with rows and without.
        let mut by_price: BTreeMap<(&ClusterId, Option<Price>), Priced<'_>> = BTreeMap::new();
        for priced in of_rows.chain(of_sums) {
            by_price
                .entry((priced.cluster, priced.price()))
                .and_modify(|known| known.usage.add(priced.usage))
                .or_insert(priced);
        }
        let mut sums: BTreeMap<(&ClusterId, &str, Option<Currency>), Sum> = BTreeMap::new();
        for Priced {
            cluster,
            rate,
            usage,
        } in by_price.into_values()
        {
            let class = rate.map_or(UNPRICED, |rate| rate.class.name());
            let currency = rate.map(|rate| rate.currency);
            let sum = sums.entry((cluster, class, currency)).or_default();
            sum.usage.add(usage);
            sum.cost = add(sum.cost, rate.map(|rate| rate.cost(usage.allocated)));
            sum.lost_cost = add(sum.lost_cost, rate.map(|rate| rate.cost(usage.lost)));
        }
        sums.into_iter()
            .map(|((cluster, class, currency), sum)| {
                json!({
                    "cluster": cluster.as_str(),
                    "rate_class": class,
                    "currency": currency.map(|currency| currency.to_string()),
                    "gpu_hours": Cell::hours(sum.usage.allocated).json(),
                    "cost": money(sum.cost),
                    "straggler_gpu_hours": Cell::hours(sum.usage.lost).json(),
                    "straggler_cost": money(sum.lost_cost),
                    "coverage": sum.usage.coverage().json(),
                })
            })
            .collect()
    }
}

fn of_row<'a>(row: &'a ReportRow, rates: &'a Rates) -> Priced<'a> {
    let node_hour = &row.node_hour;
    Priced {
        cluster: &node_hour.cluster,
        rate: PricedRow::new(row, rates).rate,
        usage: Usage {
            allocated: node_hour.allocated,
            lost: node_hour.lost,
            ranks_reporting: node_hour.ranks_reporting.into(),
            ranks_expected: node_hour.ranks_expected.into(),
        },
    }
}

/// The price does not change in the hours of a sum.
fn of_sum<'a>(sum: &'a NodeSum, rates: &'a Rates) -> Priced<'a> {
    let gpu = Gpu {
        cluster: &sum.cluster,
        node: &sum.node,
        model: sum.gpu_model.as_deref(),
    };
    Priced {
        cluster: &sum.cluster,
        rate: rates.rate(&gpu, sum.first.begin()),
        usage: Usage {
            allocated: sum.allocated,
            lost: sum.lost,
            ranks_reporting: sum.ranks_reporting,
            ranks_expected: sum.ranks_expected,
        },
    }
}

impl Priced<'_> {
    fn price(&self) -> Option<Price> {
        self.rate
            .map(|rate| (rate.class, rate.currency, rate.per_gpu_hour))
    }
}

impl Usage {
    fn add(&mut self, other: Self) {
        self.allocated = self.allocated + other.allocated;
        self.lost = self.lost + other.lost;
        self.ranks_reporting += other.ranks_reporting;
        self.ranks_expected += other.ranks_expected;
    }

    fn coverage(&self) -> Cell {
        if self.ranks_expected == 0 {
            return Cell::Null;
        }
        let share = Decimal::from(self.ranks_reporting) / Decimal::from(self.ranks_expected);
        Cell::Number(share.round_dp(6))
    }
}

fn add(sum: Option<Decimal>, more: Option<Decimal>) -> Option<Decimal> {
    more.map(|more| sum.unwrap_or_default() + more)
}

fn money(amount: Option<Decimal>) -> Value {
    amount.map_or(Value::Null, |amount| Cell::Number(amount).json())
}
