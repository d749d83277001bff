use std::str::FromStr;
use std::sync::Arc;

use echo_core::ids::IncidentId;
use echo_core::model::detector_output::LostTime;
use echo_core::units::{GpuTime, Nanos, Window};
use proptest::prelude::{Strategy, prop_assert_eq, proptest};
use rust_decimal::Decimal;

use super::{Bill, money};
use crate::rates::Rates;

fn rates() -> Rates {
    let text = "
rates:
  - { gpu_model: H200, rate_class: on_demand, rate: 3.8, currency: USD, effective_to: 2026-01-02 }
  - { gpu_model: H200, rate_class: on_demand, rate: 3.333333, currency: USD, effective_from: 2026-01-02 }
  - { gpu_model: H100, rate_class: reserved, rate: 2.1, currency: EUR }
";
    Rates::parse(text).unwrap()
}

fn window() -> Window {
    let instant = |text: &str| {
        let timestamp: jiff::Timestamp = text.parse().unwrap();
        Nanos::new(i64::try_from(timestamp.as_nanosecond()).unwrap())
    };
    Window::new(
        instant("2026-01-01T12:00:00Z"),
        instant("2026-01-02T12:00:00Z"),
    )
    .unwrap()
}

fn row(incident: u64, indexes: (usize, usize), hour: i64, lost_gpu_ms: f64) -> LostTime {
    let from = window().from().offset(hour * 3_600_000_000_000);
    LostTime {
        incident: IncidentId::new(incident),
        cluster: "c".parse().unwrap(),
        node: ["a", "b", "c"][indexes.0].parse().unwrap(),
        gpu_model: [Some("H200"), Some("H100"), Some("Z"), None][indexes.1].map(Arc::from),
        interval: Window::new(from, from.offset(5_000_000_000)).unwrap(),
        n_ranks: 8,
        iterations: 10.0,
        lost_gpu_ms,
        peer_wait_gpu_ms: None,
        saved_gpu_ms: lost_gpu_ms,
    }
}

#[test]
fn currencies_and_unpriced_time_are_summed_separately() {
    let hour = 3.6e6;
    let rows = [
        row(1, (0, 0), 0, hour),
        row(1, (0, 0), 20, hour),
        row(1, (1, 1), 0, hour),
        row(1, (2, 2), 0, hour),
        row(2, (2, 3), 0, hour),
    ];
    let rates = rates();
    let sums: Vec<(String, f64, f64)> = Bill::new(&rows, window(), &rates)
        .by_currency()
        .into_iter()
        .map(|(currency, sum)| {
            let name = currency.map_or_else(|| "none".to_owned(), |currency| currency.to_string());
            (name, sum.time.hours(), money(sum.cost))
        })
        .collect();
    let expected = [
        ("none".to_owned(), 2.0, 0.0),
        ("EUR".to_owned(), 1.0, 2.1),
        ("USD".to_owned(), 2.0, 7.133_333),
    ];
    assert_eq!(sums, expected);
}

#[test]
fn money_converts_to_the_nearest_double() {
    assert_eq!(
        money(Decimal::from_str("35.530000").unwrap()).to_string(),
        "35.53"
    );
    assert_eq!(money(Decimal::ZERO).to_string(), "0");
}

proptest! {
    #[test]
    fn parts_add_up_to_the_total_to_the_millionth_however_they_are_grouped(
        rows in proptest::collection::vec(
            (0..5_u64, 0..3_usize, 0..4_usize, 0..24_i64, -1e6..1e8_f64).prop_map(
                |(incident, node, model, hour, lost)| row(incident, (node, model), hour, lost)
            ),
            0..80,
        )
    ) {
        let rates = rates();
        let bill = Bill::new(&rows, window(), &rates);
        let totals = bill.by_currency();
        let time: GpuTime = totals.values().map(|sum| sum.time).sum();
        prop_assert_eq!(time, bill.time());
        let by_incident = bill.sum_by(|item| item.loss.incident);
        let by_node = bill.sum_by(|item| item.loss.node.clone());
        let by_price = bill.sum_by(|item| item.rate.map(|rate| rate.per_gpu_hour));
        for (currency, total) in &totals {
            let sums = [
                by_incident.iter().filter(|(key, _)| key.1 == *currency).map(|(_, sum)| *sum).collect::<Vec<_>>(),
                by_node.iter().filter(|(key, _)| key.1 == *currency).map(|(_, sum)| *sum).collect(),
                by_price.iter().filter(|(key, _)| key.1 == *currency).map(|(_, sum)| *sum).collect(),
            ];
            for items in sums {
                prop_assert_eq!(items.iter().map(|sum| sum.cost).sum::<Decimal>(), total.cost);
                prop_assert_eq!(items.iter().map(|sum| sum.time).sum::<GpuTime>(), total.time);
            }
        }
    }
}
