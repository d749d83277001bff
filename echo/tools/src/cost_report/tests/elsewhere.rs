//! Hours that another server with the same lake has not closed.

use std::collections::BTreeSet;
use std::sync::Arc;

use echo_analysis::hours::node_hours;
use echo_core::error::{Code, Coded};
use echo_core::ids::ClusterId;
use echo_core::model::cost::ReportSpan;
use echo_core::model::event::{BatchKey, Event, EventBatch, Origin};
use echo_core::units::Hour;
use echo_store::EventStore;
use echo_store::duckdb::DuckDbStore;
use echo_store::hours::{ClosingHour, CostHours, UnsettledHour};

use super::{context, cost, day_request};
use crate::cost_report::{Report, ReportRequest};
use crate::fixture::{at, batch};

/// The same events in another cluster, under another key.
fn in_cluster(cluster: &str, batch: EventBatch) -> EventBatch {
    let cluster: ClusterId = cluster.parse().unwrap();
    let moved = |event: Event| Event {
        origin: Arc::new(Origin {
            cluster: cluster.clone(),
            ..Origin::clone(&event.origin)
        }),
        ..event
    };
    EventBatch {
        key: BatchKey::Content(7),
        events: batch.events.into_iter().map(moved).collect(),
        ..batch
    }
}

/// Closes all due hours for these clusters alone.
async fn close_for(store: &DuckDbStore, clusters: &[&str]) {
    for due in store.due_hours() {
        let seen = store.coverage(None, due.hour.window()).await.unwrap();
        let seen: Vec<ReportSpan> = seen.iter().map(ReportSpan::from).collect();
        let mut rows = node_hours(due.hour, &seen, &[]);
        rows.retain(|row| clusters.contains(&row.cluster.as_str()));
        store.close_hour(ClosingHour { due, rows }).await.unwrap();
    }
}

/// One hour of two clusters, as a lake shows it: the server of `prod` has closed it, that of `lab`
/// has not.
async fn half_closed() -> Arc<DuckDbStore> {
    let store = DuckDbStore::scratch();
    store.append(batch(0..4, 0..=600)).await.unwrap();
    let lab = in_cluster("lab", batch(0..2, 0..=900));
    store.append(lab).await.unwrap();
    close_for(&store, &["prod"]).await;
    store.set_due_elsewhere(vec![UnsettledHour {
        hour: Hour::containing(at(0)),
        was_closed: false,
        clusters: Some(Arc::new(["lab".parse().unwrap()].into())),
    }]);
    Arc::new(store)
}

fn of_cluster(cluster: &str) -> ReportRequest {
    ReportRequest {
        cluster: Some(cluster.to_owned()),
        ..day_request()
    }
}

/// Clusters, revisions and allocated time of the rows.
fn rows(report: &Report) -> Vec<(&str, Option<u64>, i64)> {
    let rows = report.rows.iter().map(|row| {
        let of = &row.node_hour;
        (of.cluster.as_str(), row.revision, of.allocated.micros())
    });
    rows.collect()
}

#[tokio::test]
async fn the_report_is_final_only_for_clusters_whose_server_has_closed_the_hour() {
    let store = half_closed().await;
    let context = context(&store);
    let fleet = day_request().report(&context).await;
    assert_eq!(fleet.unwrap_err().code(), Code::Refused);
    let lab = of_cluster("lab").report(&context).await;
    assert_eq!(lab.unwrap_err().code(), Code::Refused);
    let prod = of_cluster("prod").report(&context).await.unwrap();
    assert_eq!((prod.open.len(), prod.rows.len()), (0, 2));
}

#[tokio::test]
async fn an_hour_of_which_some_clusters_are_closed_has_each_cluster_once() {
    let store = half_closed().await;
    let context = context(&store);
    let open = ReportRequest {
        open: true,
        ..day_request()
    };
    let preliminary = open.report(&context).await.unwrap();
    let revisions: BTreeSet<_> = rows(&preliminary)
        .iter()
        .map(|(cluster, revision, _)| (*cluster, *revision))
        .collect();
    assert_eq!(
        revisions,
        [("lab", None), ("prod", Some(1))].into(),
        "{preliminary:?}"
    );
    let day = ["2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z"];
    let allocated = cost(&context, day[0], day[1]).await.allocated_gpu_hours;

    // The other server closes it too.
    store.append(batch(0..1, 5..=5)).await.unwrap();
    close_for(&store, &["lab", "prod"]).await;
    store.set_due_elsewhere(Vec::new());
    let closed = day_request().report(&context).await.unwrap();
    let without_revisions = |report: &Report| -> Vec<(String, i64)> {
        let rows = rows(report).into_iter();
        rows.map(|(cluster, _, allocated)| (cluster.to_owned(), allocated))
            .collect()
    };
    assert_eq!(without_revisions(&preliminary), without_revisions(&closed));
    let after = cost(&context, day[0], day[1]).await.allocated_gpu_hours;
    assert!((allocated - after).abs() < 1e-12, "{allocated} {after}");
    assert!(after > 0.9, "{after}");
}
