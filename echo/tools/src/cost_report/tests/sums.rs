//! Sums of a report.

use std::sync::Arc;

use echo_store::EventStore;
use echo_store::duckdb::DuckDbStore;

use super::{close_all, context};
use crate::cost_report::ReportRequest;
use crate::fixture::{batch, detector_output};
use crate::rates::Rates;

#[tokio::test]
async fn sums_are_the_same_with_rows_and_without() {
    let store = Arc::new(DuckDbStore::scratch());
    store.append(batch(0..4, -7_200..=600)).await.unwrap();
    store.store_verdicts(detector_output()).await.unwrap();
    close_all(&store).await;
    // An hour that is due again, and one that was never closed.
    store.append(batch(0..4, 900..=1_200)).await.unwrap();
    store.append(batch(0..4, 7_205..=7_800)).await.unwrap();
    let mut context = context(&store);
    let text = "
rates:
  - { node: node-0, rate_class: owned, rate: 1.7, currency: EUR, effective_to: 2026-06-01 }
  - { node: node-0, rate_class: owned, rate: 2.3, currency: EUR, effective_from: 2026-06-01 }";
    context.rates = Arc::new(Rates::parse(text).unwrap());
    let mut answers = Vec::new();
    for rows in [None, Some(false)] {
        let request = ReportRequest {
            from: Some("2026-05-31T20:00:00Z".to_owned()),
            to: Some("2026-06-01T04:00:00Z".to_owned()),
            open: true,
            rows,
            ..ReportRequest::default()
        };
        let report = request.report(&context).await.unwrap();
        assert_eq!(report.sums.is_empty(), rows.is_none());
        let answer: serde_json::Value =
            serde_json::from_str(&report.json(&context.rates, false)).unwrap();
        answers.push(answer);
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0]["summary"].as_array().unwrap().len(), 2);
    assert_eq!(answers[0]["metadata"]["n_rows"], 9);
}
