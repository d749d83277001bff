//! Contract tests of hourly costs.

use std::sync::Arc;

use echo_core::ids::ClusterId;
use echo_core::model::cost::{NodeHour, StoredHour};
use echo_core::model::event::Reading;
use echo_core::units::{GpuTime, Hour, Window};

use crate::EventStore;
use crate::contract::sample::{at, bare_origin, batch, gauge, losses, lost};
use crate::duckdb::DuckDbStore;
use crate::hours::{Closed, ClosingHour, CostHours, DueHour};

const HOUR_MS: i64 = 3_600_000;

/// Costs of a node in the hour that contains the sample times.
fn node_hour(cluster: &str, node: &str, lost_us: i64) -> NodeHour {
    NodeHour {
        hour: Hour::containing(at(0)),
        cluster: cluster.parse().unwrap(),
        node: node.parse().unwrap(),
        gpu_model: Some(Arc::from("H200")),
        gpus: 8,
        allocated: GpuTime::new(8 * GpuTime::MICROS_PER_HOUR),
        lost: GpuTime::new(lost_us),
        ranks_reporting: 8,
        ranks_expected: 64,
    }
}

async fn report(store: &DuckDbStore, number: u64, millis: i64) {
    let origin = bare_origin("prod", "node-1");
    let event = gauge(&origin, "fleet.rank.period_ms", millis, Reading::Int(1));
    store.append(batch(number, vec![event])).await.unwrap();
}

fn hours(due: &[DueHour]) -> Vec<i64> {
    let begins = due.iter().map(|due| due.hour.begin().value());
    begins
        .map(|begin| (begin - at(0).value()) / Hour::NANOS)
        .collect()
}

async fn close(store: &DuckDbStore, rows: Vec<NodeHour>) -> Closed {
    let due = store.due_hours()[0];
    store.close_hour(ClosingHour { due, rows }).await.unwrap()
}

async fn closed(store: &DuckDbStore) -> Vec<StoredHour> {
    let window = Window::new(at(0), at(2 * HOUR_MS)).unwrap();
    store.cost_hours(None, window, 100).await.unwrap()
}

#[tokio::test]
async fn storing_anything_makes_its_hours_due() {
    let store = DuckDbStore::scratch();
    assert_eq!(store.due_hours(), []);
    report(&store, 1, 3 * HOUR_MS).await;
    report(&store, 2, HOUR_MS - 1).await;
    let late = lost(1, "prod", "node-1", (HOUR_MS, HOUR_MS + 10));
    store.store_verdicts(losses([late])).await.unwrap();
    let due = store.due_hours();
    assert_eq!(hours(&due), [0, 1, 3]);
    assert!(due.iter().all(|due| !due.was_closed));
    assert_eq!(
        due[0].last_event, 2,
        "the last event that must have been judged"
    );
    assert_eq!(
        close(&store, vec![node_hour("prod", "node-1", 5)]).await,
        Closed::Revised(1)
    );
    assert_eq!(hours(&store.due_hours()), [1, 3]);
    report(&store, 3, 10).await;
    assert!(store.due_hours()[0].was_closed);
}

#[tokio::test]
async fn a_closed_hour_is_read_as_it_was_stored() {
    let store = DuckDbStore::scratch();
    report(&store, 1, 10).await;
    let mut unknown = node_hour("prod", "node-1", 0);
    unknown.gpu_model = None;
    let rows = vec![
        unknown,
        node_hour("prod", "node-1", i64::from(u32::MAX)),
        node_hour("prod", "node-2", 7),
        node_hour("test", "node-1", 3),
    ];
    assert_eq!(close(&store, rows.clone()).await, Closed::Revised(2));
    let found = closed(&store).await;
    assert!(found.iter().all(|stored| stored.revision == 1));
    let found: Vec<NodeHour> = found.into_iter().map(|stored| stored.row).collect();
    assert_eq!(found, rows);
    let window = Hour::containing(at(0)).window();
    let test: ClusterId = "test".parse().unwrap();
    let of_test = store.cost_hours(Some(&test), window, 100).await.unwrap();
    assert_eq!(of_test.len(), 1);
    assert_eq!(store.cost_hours(None, window, 2).await.unwrap().len(), 2);
    let clusters = store.cost_clusters(window).await.unwrap();
    assert_eq!(clusters, ["prod".parse().unwrap(), test.clone()].into());
    let allocated = |cluster| store.closed_allocation(cluster, window);
    assert_eq!(allocated(None).await.unwrap().hours().to_string(), "32");
    assert_eq!(
        allocated(Some(&test)).await.unwrap().hours().to_string(),
        "8"
    );
}

#[tokio::test]
async fn an_hour_gets_a_revision_when_its_costs_change() {
    let store = DuckDbStore::scratch();
    let both = |lost_us| {
        vec![
            node_hour("prod", "node-1", lost_us),
            node_hour("test", "node-1", 3),
        ]
    };
    report(&store, 1, 10).await;
    assert_eq!(close(&store, both(5)).await, Closed::Revised(2));
    report(&store, 2, 20).await;
    assert_eq!(close(&store, both(5)).await, Closed::Same);
    assert_eq!(store.due_hours(), []);
    report(&store, 3, 30).await;
    assert_eq!(close(&store, both(6)).await, Closed::Revised(1));
    let window = Window::new(at(0), at(2 * HOUR_MS)).unwrap();
    let sums = store.cost_sums(None, window).await.unwrap();
    let lost: Vec<i64> = sums.iter().map(|sum| sum.lost.micros()).collect();
    assert_eq!(
        (lost, sums[0].hours),
        (vec![6, 3], 1),
        "of the latest revision"
    );
    let found: Vec<_> = closed(&store)
        .await
        .into_iter()
        .map(|stored| {
            (
                stored.row.cluster.to_string(),
                stored.revision,
                stored.row.lost.micros(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [("prod".to_owned(), 2, 6), ("test".to_owned(), 1, 3)]
    );
    let allocated = store
        .closed_allocation(None, Hour::containing(at(0)).window())
        .await;
    assert_eq!(
        allocated.unwrap().hours().to_string(),
        "16",
        "older revisions do not count"
    );
    let later = Hour::containing(at(1_000_000_000)).window();
    let none = store.closed_allocation(None, later).await.unwrap();
    assert_eq!(none.hours().to_string(), "0", "no hour is closed");
}

#[tokio::test]
async fn an_hour_that_changes_while_it_is_computed_stays_due() {
    let store = DuckDbStore::scratch();
    report(&store, 1, 10).await;
    let due = store.due_hours()[0];
    report(&store, 2, 20).await;
    let rows = vec![node_hour("prod", "node-1", 5)];
    let closing = ClosingHour { due, rows };
    assert_eq!(store.close_hour(closing).await.unwrap(), Closed::Touched);
    assert_eq!(closed(&store).await, []);
    assert_eq!(store.due_hours().len(), 1);
}
