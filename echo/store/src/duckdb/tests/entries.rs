//! Tests of the deletion of series and origins that no event refers to.

use echo_core::clock::ManualClock;
use echo_core::model::event::{BatchKey, EventBatch, Reading};

use super::column;
use super::retention::{by_age, follow, limited, open, some_rounds, until_dropped};
use crate::contract::sample::{at, bare_origin, gauge, query};
use crate::duckdb::connection_pool::Reader;
use crate::duckdb::rows::dictionary_gc;
use crate::duckdb::{DuckDbStore, tests};
use crate::{EventStore, Vitals};

const HOUR: i64 = 3_600_000;

fn received(hours: i64, metric: &str, node: &str) -> EventBatch {
    EventBatch {
        key: BatchKey::Content(hours.unsigned_abs().into()),
        received: at(hours * HOUR + 1),
        events: vec![gauge(
            &bare_origin("prod", node),
            metric,
            hours * HOUR + 1,
            Reading::Int(1),
        )],
    }
}

async fn series(store: &DuckDbStore) -> Vec<String> {
    column(store, "SELECT metric FROM series ORDER BY metric").await
}

async fn until_kept(store: &DuckDbStore, series: u64, origins: u64) {
    let kept = |vitals: Vitals| (vitals.series, vitals.origins) == (series, origins);
    while !kept(store.vitals()) {
        store.extent(None).await.unwrap();
    }
}

#[tokio::test]
async fn series_and_origins_of_deleted_events_are_deleted_and_can_be_added_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(26 * HOUR));
    let store = open(&limited(&folder, by_age(1)), &clock);
    for batch in [
        received(0, "gone", "old"),
        received(12, "kept", "new"),
        received(25, "kept", "new"),
    ] {
        store.append(batch).await.unwrap();
    }
    assert_eq!((store.vitals().series, store.vitals().origins), (2, 2));
    drop(store);
    // The event times show that the clock is right.
    let store = open(&limited(&folder, by_age(1)), &clock);
    follow(&store).await;
    until_dropped(&store, at(HOUR)).await;
    // Hourly tasks run at once when the clock goes back.
    clock.set(at(25 * HOUR - 1));
    until_kept(&store, 1, 1).await;
    assert_eq!(series(&store).await, ["kept"]);
    let origins: Vec<String> = column(&store, "SELECT node FROM origins").await;
    assert_eq!(origins, ["new"]);

    store.append(received(26, "gone", "old")).await.unwrap();
    drop(store);
    let store = open(&limited(&folder, by_age(1)), &clock);
    let page = store.events(query(0, 30 * HOUR)).await.unwrap();
    let metrics = page
        .events
        .iter()
        .map(|stored| stored.event.metric.as_str());
    assert_eq!(metrics.collect::<Vec<_>>(), ["gone", "kept", "kept"]);
    assert_eq!(series(&store).await, ["gone", "kept"]);
}

#[tokio::test]
async fn unused_series_are_searched_for_only_after_deletions() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(26 * HOUR));
    let stray = "INSERT INTO series (id, metric, unit, on_device) VALUES (7, 'stray', '', FALSE)";
    // Inserted before the first round searches.
    let before = tests::open(&tests::config(&folder));
    tests::run(&before, stray).await.unwrap();
    drop(before);
    let store = open(&limited(&folder, by_age(1)), &clock);
    // Deletions before the start are unknown.
    while series(&store).await == ["stray"] {}
    tests::run(&store, stray).await.unwrap();
    store.append(received(25, "kept", "new")).await.unwrap();
    clock.set(at(26 * HOUR - 1));
    some_rounds(&store).await;
    assert_eq!(series(&store).await, ["kept", "stray"]);
}

#[tokio::test]
async fn a_series_that_is_used_again_before_its_deletion_is_kept() {
    let (store, _folder) = tests::store();
    tests::run(
        &store,
        "INSERT INTO series (id, metric, unit, on_device) VALUES (7, 'stray', '', FALSE), (8, 'other stray', '', FALSE);
         INSERT INTO origins (id, cluster, node) VALUES (9, 'prod', 'stray')",
    )
    .await
    .unwrap();
    let found = store.readers.run("testing", |reader: &Reader| {
        dictionary_gc::find(&reader.connection)
    });
    let found = found.await.unwrap();
    store.append(received(0, "kept", "new")).await.unwrap();
    tests::run(&store, "UPDATE event_rows SET series = 7")
        .await
        .unwrap();
    let gone = store.readers.run("testing", move |reader: &Reader| {
        let gone = found
            .iter()
            .map(|some| dictionary_gc::delete(&reader.connection, some));
        gone.collect::<Result<Vec<_>, _>>()
    });
    let gone: Vec<_> = gone
        .await
        .unwrap()
        .into_iter()
        .flat_map(|(_, ids)| ids)
        .collect();
    assert_eq!(gone, [8, 9]);
    assert_eq!(series(&store).await, ["kept", "stray"]);
}
