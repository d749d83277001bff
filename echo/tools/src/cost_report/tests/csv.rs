//! Format of the CSV.

use std::sync::Arc;

use echo_core::model::event::{EventBatch, Origin};
use echo_store::EventStore;
use echo_store::duckdb::DuckDbStore;

use super::{close_all, context, report, store, text};
use crate::cost_report::focus::COLUMNS;
use crate::fixture::batch;
use crate::rates::Rates;

#[tokio::test]
async fn every_row_has_every_column_and_is_quoted_where_needed() {
    let store = store().await;
    close_all(&store).await;
    let context = context(&store);
    insta::assert_snapshot!(text(&report(&context).await, &context).replace("\r\n", "\n"));
}

#[tokio::test]
async fn names_from_senders_become_no_formulas_and_break_no_lines() {
    let store = Arc::new(DuckDbStore::scratch());
    let sent = batch(0..2, 0..=600);
    let named = |cluster: &str, node: &str| {
        let mut events = sent.events.clone();
        for event in &mut events {
            let mut origin = Origin::clone(&event.origin);
            origin.cluster = cluster.parse().unwrap();
            origin.node = node.parse().unwrap();
            origin.gpu_model = Some(Arc::from("+H200, \"new\""));
            event.origin = Arc::new(origin);
        }
        EventBatch {
            key: echo_core::model::event::BatchKey::Content(cluster.len() as u128),
            events,
            ..sent.clone()
        }
    };
    store
        .append(named("=cmd|' /C calc'!A0", "@node"))
        .await
        .unwrap();
    store.append(named("-1,\"x", "+1")).await.unwrap();
    close_all(&store).await;
    let mut context = context(&store);
    context.rates = Arc::new(Rates::default());
    let csv = text(&report(&context).await, &context);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let n_columns = reader.headers().unwrap().len();
    let mut rows = 0;
    for record in reader.records() {
        let record = record.unwrap();
        assert_eq!(record.len(), n_columns);
        for cell in &record {
            assert!(!cell.starts_with(['=', '+', '-', '@']), "{cell}");
        }
        rows += 1;
    }
    assert_eq!(rows, 2);
}

#[tokio::test]
async fn gpus_without_a_price_have_no_currency_and_are_marked_unpriced() {
    let store = store().await;
    close_all(&store).await;
    let mut context = context(&store);
    context.rates = Arc::new(Rates::default());
    let csv = text(&report(&context).await, &context);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().clone();
    for record in reader.records() {
        let record = record.unwrap();
        let cell = |name: &str| &record[header.iter().position(|column| column == name).unwrap()];
        assert_eq!(
            (cell("BillingCurrency"), cell("x_EchoRateClass")),
            ("XXX", "unpriced")
        );
        assert_eq!(
            (cell("ListUnitPrice"), cell("x_EchoStragglerCost")),
            ("", "")
        );
        assert_eq!(cell("x_EchoUnpricedGpuHours"), cell("ConsumedQuantity"));
    }
}

#[test]
fn every_column_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/focus.md");
    let docs = std::fs::read_to_string(path).unwrap();
    for (name, _) in COLUMNS {
        assert!(
            docs.contains(&format!("`{name}`")),
            "{name} is not in {path}"
        );
    }
}
