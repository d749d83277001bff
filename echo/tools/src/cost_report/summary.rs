//! Sums of a report.

use std::collections::BTreeMap;

use echo_core::units::GpuTime;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::cost_report::Report;
use crate::cost_report::cell::Cell;
use crate::cost_report::focus::PricedRow;
use crate::rates::Rates;

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    allocated: GpuTime,
    lost: GpuTime,
    cost: Option<Decimal>,
    lost_cost: Option<Decimal>,
    ranks_reporting: u64,
    ranks_expected: u64,
}

impl Report {
    /// Sums by cluster, rate class and currency. Currencies are never mixed in one sum.
    pub(super) fn summary(&self, rates: &Rates) -> Vec<Value> {
        let mut sums: BTreeMap<(String, &str, String), Sum> = BTreeMap::new();
        for row in &self.rows {
            let line = PricedRow::new(row, rates);
            let cluster = row.node_hour.cluster.to_string();
            let sum = sums
                .entry((cluster, line.class(), line.currency()))
                .or_default();
            sum.allocated = sum.allocated + row.node_hour.allocated;
            sum.lost = sum.lost + row.node_hour.lost;
            sum.cost = add(sum.cost, line.cost());
            sum.lost_cost = add(sum.lost_cost, line.lost_cost());
            sum.ranks_reporting += u64::from(row.node_hour.ranks_reporting);
            sum.ranks_expected += u64::from(row.node_hour.ranks_expected);
        }
        sums.into_iter()
            .map(|((cluster, class, currency), sum)| {
                json!({
                    "cluster": cluster,
                    "rate_class": class,
                    "currency": sum.cost.map(|_| currency),
                    "gpu_hours": Cell::hours(sum.allocated).json(),
                    "cost": money(sum.cost),
                    "straggler_gpu_hours": Cell::hours(sum.lost).json(),
                    "straggler_cost": money(sum.lost_cost),
                    "coverage": sum.coverage().json(),
                })
            })
            .collect()
    }
}

impl Sum {
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
