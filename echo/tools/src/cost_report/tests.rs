#![expect(
    clippy::significant_drop_tightening,
    reason = "a store lives to the end of its test"
)]

use std::sync::Arc;

use echo_analysis::hours::node_hours;
use echo_core::clock::ManualClock;
use echo_core::error::{Code, Coded};
use echo_core::ids::IncidentId;
use echo_core::model::cost::ReportSpan;
use echo_core::model::detector_output::{DetectorOutput, LostTime};
use echo_core::units::Window;
use echo_store::EventStore;
use echo_store::duckdb::DuckDbStore;
use echo_store::hours::{ClosingHour, CostHours};
use rust_decimal::Decimal;

use super::{Report, ReportRequest};
use crate::fixture::{at, batch, context_over, detector_output};
use crate::get_cost::GetCost;
use crate::get_cost::answer::Cost;
use crate::rates::Rates;
use crate::tool::Tool;
use crate::{ToolContext, ToolError};

mod csv;
mod elsewhere;
mod sums;

const DAY_S: i64 = 86_400;

/// The ten minutes of the fixture, and the same again two hours later, in a store that the test can
/// access directly.
async fn store() -> Arc<DuckDbStore> {
    let store = DuckDbStore::scratch();
    store.append(batch(0..4, 0..=600)).await.unwrap();
    store.append(batch(0..4, 7_200..=7_800)).await.unwrap();
    store.store_verdicts(detector_output()).await.unwrap();
    let later = detector_output().lost.into_iter().map(|lost| LostTime {
        interval: Window::new(
            lost.interval.from().offset(7_200_000_000_000),
            lost.interval.to().offset(7_200_000_000_000),
        )
        .unwrap(),
        lost_gpu_ms: lost.lost_gpu_ms / 3.0,
        ..lost
    });
    let noise = LostTime {
        incident: IncidentId::new(0x55),
        lost_gpu_ms: -5_000.0,
        ..detector_output().lost[0].clone()
    };
    let later = DetectorOutput {
        lost: later.chain([noise]).collect(),
        ..DetectorOutput::default()
    };
    store.store_verdicts(later).await.unwrap();
    Arc::new(store)
}

/// Closes all due hours, as the background task does.
async fn close_all(store: &DuckDbStore) {
    for due in store.due_hours() {
        let seen = store.coverage(None, due.hour.window()).await.unwrap();
        let seen = seen.iter().map(ReportSpan::from);
        let lost = store.lost_time(None, due.hour.window()).await.unwrap();
        let rows = node_hours(due.hour, &seen.collect::<Vec<_>>(), &lost);
        store.close_hour(ClosingHour { due, rows }).await.unwrap();
    }
}

/// A context two days later.
fn context(store: &Arc<DuckDbStore>) -> ToolContext {
    let shared: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(store);
    ToolContext {
        clock: Arc::new(ManualClock::at(at(2 * DAY_S))),
        ..context_over(shared)
    }
}

fn day_request() -> ReportRequest {
    ReportRequest {
        day: Some("2026-06-01".to_owned()),
        ..ReportRequest::default()
    }
}

async fn report(context: &ToolContext) -> Report {
    day_request().report(context).await.unwrap()
}

async fn cost(context: &ToolContext, from: &str, to: &str) -> Cost {
    let tool = GetCost {
        from: Some(from.parse().unwrap()),
        to: Some(to.parse().unwrap()),
        ..GetCost::default()
    };
    tool.run(context).await.unwrap()
}

/// Sums of the columns of a CSV by name.
fn sum(csv: &str, column: &str) -> Decimal {
    let mut lines = csv.split("\r\n").filter(|line| !line.is_empty());
    let place = lines
        .next()
        .unwrap()
        .split(',')
        .position(|name| name == column)
        .unwrap();
    let mut reader = ::csv::Reader::from_reader(csv.as_bytes());
    let cells = reader
        .records()
        .map(|record| record.unwrap()[place].to_owned());
    cells
        .filter(|cell| !cell.is_empty())
        .map(|cell| cell.parse::<Decimal>().unwrap())
        .sum()
}

fn text(report: &Report, context: &ToolContext) -> String {
    String::from_utf8(report.csv(&context.rates).unwrap()).unwrap()
}

#[tokio::test]
async fn the_rows_add_up_to_the_answer_of_get_cost_for_the_same_day() {
    let store = store().await;
    close_all(&store).await;
    let context = context(&store);
    let csv = text(&report(&context).await, &context);
    let tool = cost(&context, "2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z").await;
    let near = |sum: Decimal, number: f64, within: f64| {
        let sum: f64 = sum.to_string().parse().unwrap();
        assert!((sum - number).abs() <= within, "{sum} is not {number}");
    };
    near(
        sum(&csv, "x_EchoStragglerCost"),
        tool.window_total.unwrap(),
        1e-6,
    );
    near(
        sum(&csv, "x_EchoStragglerGpuHours"),
        tool.lost_gpu_hours,
        1e-9,
    );
    near(
        sum(&csv, "ConsumedQuantity"),
        tool.allocated_gpu_hours,
        1e-9,
    );
    assert!(tool.lost_gpu_hours > 0.0 && tool.unpriced_gpu_hours > 0.0);
    let priced = sum(&csv, "x_EchoStragglerGpuHours") - unpriced_lost(&csv);
    near(priced, tool.lost_gpu_hours - tool.unpriced_gpu_hours, 1e-9);
}

/// Lost hours in rows without a price.
fn unpriced_lost(csv: &str) -> Decimal {
    let mut reader = ::csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().clone();
    let place = |name: &str| header.iter().position(|column| column == name).unwrap();
    let records = reader.records().map(Result::unwrap);
    records
        .filter(|record| &record[place("x_EchoRateClass")] == "unpriced")
        .map(|record| {
            record[place("x_EchoStragglerGpuHours")]
                .parse::<Decimal>()
                .unwrap()
        })
        .sum()
}

#[tokio::test]
async fn windows_split_between_hours_add_up_closed_or_open() {
    let store = store().await;
    let context = context(&store);
    let hours = ["00", "01", "02", "03"].map(|hour| format!("2026-06-01T{hour}:00:00Z"));
    for _ in ["open", "closed"] {
        let whole = cost(&context, &hours[0], &hours[3]).await;
        let mut parts = (0.0, 0.0);
        for pair in hours.windows(2) {
            let part = cost(&context, &pair[0], &pair[1]).await;
            parts = (
                parts.0 + part.lost_gpu_hours,
                parts.1 + part.allocated_gpu_hours,
            );
        }
        assert!((parts.0 - whole.lost_gpu_hours).abs() < 1e-12);
        assert!((parts.1 - whole.allocated_gpu_hours).abs() < 1e-12);
        assert!(whole.allocated_gpu_hours > 1.3);
        close_all(&store).await;
    }
}

#[tokio::test]
async fn a_closed_day_stays_byte_identical_after_its_events_are_deleted() {
    let store = store().await;
    close_all(&store).await;
    let context = context(&store);
    let before = text(&report(&context).await, &context);
    store.drop_before(at(DAY_S)).await;
    assert_eq!(store.extent(None).await.unwrap(), None);
    assert_eq!(text(&report(&context).await, &context), before);
    let of_cluster = ReportRequest {
        cluster: Some("prod".to_owned()),
        ..day_request()
    };
    let report = of_cluster.report(&context).await.unwrap();
    assert_eq!(
        text(&report, &context),
        before,
        "the cluster is still known"
    );
}

#[tokio::test]
async fn late_data_changes_the_report_with_the_next_revision() {
    let store = store().await;
    close_all(&store).await;
    let context = context(&store);
    let before = report(&context).await;
    store.append(batch(0..4, 900..=1_200)).await.unwrap();
    let due = report(&context).await;
    assert_eq!(
        (due.revised_soon.len(), due.rows.len()),
        (1, before.rows.len())
    );
    close_all(&store).await;
    let after = report(&context).await;
    assert_eq!((after.open.len(), after.revised_soon.len()), (0, 0));
    assert_eq!(after.rows[0].revision, Some(2));
    assert!(after.rows[1].node_hour.allocated > before.rows[1].node_hour.allocated);
    store.append(batch(0..4, 3_600..=3_900)).await.unwrap();
    let error = day_request().report(&context).await.unwrap_err();
    assert_eq!(
        error.code(),
        Code::Refused,
        "an hour without data until now is open"
    );
}

#[tokio::test]
async fn a_day_that_is_not_closed_is_refused_unless_that_is_allowed() {
    let store = store().await;
    let context = context(&store);
    let refused = day_request().report(&context).await.unwrap_err();
    assert_eq!(refused.code(), Code::Refused);
    insta::assert_snapshot!(refused.body().to_string());
    let open = ReportRequest {
        open: true,
        ..day_request()
    };
    let preliminary = open.report(&context).await.unwrap();
    assert!(
        !preliminary.open.is_empty() && preliminary.rows.iter().all(|row| row.revision.is_none())
    );
    close_all(&store).await;
    let closed = report(&context).await;
    let node_hours = |report: &Report| -> Vec<_> {
        report
            .rows
            .iter()
            .map(|row| row.node_hour.clone())
            .collect()
    };
    assert_eq!(
        node_hours(&preliminary),
        node_hours(&closed),
        "closing changes no number"
    );
    let today = ReportRequest {
        day: Some("today".to_owned()),
        ..ReportRequest::default()
    };
    assert_eq!(
        today.report(&context).await.unwrap_err().code(),
        Code::Refused
    );
}

#[tokio::test]
async fn a_day_begins_and_ends_at_midnight_utc() {
    let store = Arc::new(DuckDbStore::scratch());
    store.append(batch(0..4, -600..=600)).await.unwrap();
    close_all(&store).await;
    let context = context(&store);
    let days = ["2026-05-31", "2026-06-01"].map(|day| ReportRequest {
        day: Some(day.to_owned()),
        ..ReportRequest::default()
    });
    for (day, minutes) in days.iter().zip([10, 10]) {
        let rows = day.report(&context).await.unwrap().rows;
        let each: Vec<i64> = rows
            .iter()
            .map(|row| row.node_hour.allocated.micros() / 60_000_000)
            .collect();
        assert_eq!(each, [2 * minutes, 2 * minutes]);
    }
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_a_suggestion() {
    let context = context(&store().await);
    let request = |day: Option<&str>, from: Option<&str>, to: Option<&str>| ReportRequest {
        day: day.map(str::to_owned),
        from: from.map(str::to_owned),
        to: to.map(str::to_owned),
        ..ReportRequest::default()
    };
    let wrong = [
        request(None, None, None),
        request(Some("2026-06-31"), None, None),
        request(Some("1999-01-01"), None, None),
        request(Some("2026-06-01"), Some("2026-06-01T00:00:00Z"), None),
        request(
            None,
            Some("2026-06-01T00:00:00Z"),
            Some("2026-06-01T00:30:00Z"),
        ),
        request(
            None,
            Some("2026-06-02T00:00:00Z"),
            Some("2026-06-01T00:00:00Z"),
        ),
        request(
            None,
            Some("2026-01-01T00:00:00Z"),
            Some("2026-06-01T00:00:00Z"),
        ),
    ];
    let mut messages = Vec::new();
    for request in wrong {
        let error = request.report(&context).await.unwrap_err();
        assert!(matches!(error, ToolError::Invalid(_)), "{error}");
        messages.push(error.to_string());
    }
    insta::assert_snapshot!(messages.join("\n"));
    let unknown = ReportRequest {
        cluster: Some("other".to_owned()),
        open: true,
        ..day_request()
    };
    assert_eq!(
        unknown.report(&context).await.unwrap_err().code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn prices_are_those_of_the_day_and_currencies_stay_apart() {
    let store = Arc::new(DuckDbStore::scratch());
    store.append(batch(0..4, -600..=600)).await.unwrap();
    close_all(&store).await;
    let mut context = context(&store);
    let text = "
as_of: 2026-05-01
locations: [{ node: node-1, provider: example, region: north }]
rates:
  - { node: node-0, rate_class: owned, rate: 1.5, currency: EUR }
  - { node: node-1, rate_class: spot, rate: 2, currency: USD, effective_to: 2026-06-01 }
  - { node: node-1, rate_class: spot, rate: 3, currency: USD, effective_from: 2026-06-01, provider: example, region: north }";
    context.rates = Arc::new(Rates::parse(text).unwrap());
    let both = ReportRequest {
        from: Some("2026-05-31T00:00:00Z".to_owned()),
        to: Some("2026-06-02T00:00:00Z".to_owned()),
        ..ReportRequest::default()
    };
    let report = both.report(&context).await.unwrap();
    let answer: serde_json::Value =
        serde_json::from_str(&report.json(&context.rates, true)).unwrap();
    let rows: Vec<String> = answer["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let cell = |name: &str| row[name].to_string().replace('"', "");
            [
                "ChargePeriodStart",
                "ResourceName",
                "ListUnitPrice",
                "EffectiveCost",
                "BillingCurrency",
                "PricingCategory",
                "RegionId",
            ]
            .map(cell)
            .join(" ")
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"));
    insta::assert_json_snapshot!(answer["summary"]);
    insta::assert_json_snapshot!(answer["metadata"]);
}
