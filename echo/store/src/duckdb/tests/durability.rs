use std::fs;
use std::process;

use echo_core::model::event::{BatchKey, EventBatch};

use super::{clock, column, config, open, run, schema_version, store};
use crate::contract::numbers;
use crate::contract::sample::{
    at, batch, incident, incidents, losses, lost, origin, query, wait, window,
};
use crate::duckdb::{DuckDbConfig, DuckDbStore};
use crate::{Appended, EventStore, StoreError};

#[tokio::test]
async fn a_reopened_database_continues_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let (rank, other) = (origin("prod", "node-1", 0), origin("prod", "node-2", 1));
    let content = || EventBatch {
        key: BatchKey::Content(u128::MAX - 7),
        ..batch(0, Vec::new())
    };
    let found = incident(1, "prod", 0, 10);
    let cost = lost(1, "prod", "node-1", (0, 10));

    let store = open(&config);
    let events = vec![wait(&rank, 10), wait(&rank, 20)];
    store.append(batch(1, events.clone())).await.unwrap();
    store.append(content()).await.unwrap();
    store
        .store_verdicts(incidents([found.clone()]))
        .await
        .unwrap();
    store.store_verdicts(losses([cost.clone()])).await.unwrap();
    store.close().await.unwrap();
    drop(store);

    let store = open(&config);
    assert_eq!(*store.committed().borrow(), 2);
    let again = store.append(batch(1, events.clone())).await.unwrap();
    assert_eq!(again, Appended::Duplicate);
    assert_eq!(store.append(content()).await.unwrap(), Appended::Duplicate);
    let next = batch(2, vec![wait(&other, 30)]);
    store.append(next).await.unwrap();
    let page = store.events(query(0, 100)).await.unwrap();
    assert_eq!(numbers(&page), [3, 2, 1]);
    assert_eq!(page.events[2].event, events[0]);
    let mut later = found.clone();
    later.last_seen = at(50);
    store
        .store_verdicts(incidents([later.clone()]))
        .await
        .unwrap();
    let all = window(0, 100);
    assert_eq!(store.incidents(None, all).await.unwrap(), [later]);
    assert_eq!(store.lost_time(None, all).await.unwrap(), [cost]);
}

#[tokio::test]
async fn event_numbers_continue_after_all_events_were_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let store = open(&config);
    let events = vec![wait(&origin("prod", "node-1", 0), 10)];
    store.append(batch(1, events.clone())).await.unwrap();
    run(&store, "DELETE FROM event_rows").await.unwrap();
    drop(store);

    let store = open(&config);
    store.append(batch(2, events)).await.unwrap();
    let page = store.events(query(0, 100)).await.unwrap();
    assert_eq!(numbers(&page), [2]);
}

#[tokio::test]
async fn acknowledged_events_survive_a_kill() {
    let (store, folder) = store();
    let events = vec![wait(&origin("prod", "node-1", 0), 10)];
    store.append(batch(1, events.clone())).await.unwrap();
    // The files that a killed process leaves behind.
    let copy = tempfile::tempdir().unwrap();
    for name in ["echo.db", "echo.db.wal"] {
        fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    let copied = open(&config(&copy));
    let again = copied.append(batch(1, events.clone())).await.unwrap();
    assert_eq!(again, Appended::Duplicate);
    let page = copied.events(query(0, 100)).await.unwrap();
    assert_eq!(page.events[0].event, events[0]);
}

#[tokio::test]
async fn a_closed_store_refuses_requests_and_leaves_no_log() {
    let (store, folder) = store();
    let events = vec![wait(&origin("prod", "node-1", 0), 10)];
    store.append(batch(1, events.clone())).await.unwrap();
    store.close().await.unwrap();
    assert!(!folder.path().join("echo.db.wal").exists());
    let appended = store.append(batch(2, events)).await;
    assert!(matches!(appended, Err(StoreError::Closed)));
    let result = store.extent(None).await;
    assert!(matches!(result, Err(StoreError::Closed)));
    store.close().await.unwrap();
    let other = open(&config(&folder));
    drop(other);
}

#[tokio::test]
async fn queued_batches_are_stored_when_the_store_closes() {
    let (store, folder) = store();
    let rank = origin("prod", "node-1", 0);
    let waiting = (1..=50).map(|number| store.append(batch(number, vec![wait(&rank, 10)])));
    // Polled in order, so that the request to close is queued last.
    let (appended, closed) = tokio::join!(join_all(waiting), store.close());
    closed.unwrap();
    assert!(
        appended
            .iter()
            .all(|stored| matches!(stored, Ok(Appended::Stored { events: 1 })))
    );
    drop(store);
    let store = open(&config(&folder));
    assert_eq!(*store.committed().borrow(), 50);
}

async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut ready = true;
        for (future, output) in &mut waiting {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => ready = false,
                }
            }
        }
        if ready {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    waiting
        .into_iter()
        .filter_map(|(_, output)| output)
        .collect()
}

#[tokio::test]
async fn a_second_process_is_refused_with_the_holder_of_the_lock() {
    let (store, folder) = store();
    let refused = DuckDbStore::open(&config(&folder), clock()).unwrap_err();
    let StoreError::Locked { path, holder } = &refused else {
        panic!("{refused:?}");
    };
    assert!(path.ends_with("echo.db"), "{path}");
    let pid = format!("pid {} on ", process::id());
    assert!(holder.starts_with(&pid), "{holder}");
    let since = format!(" since {}", at(60_000));
    assert!(holder.ends_with(&since), "{holder}");
    let again = DuckDbStore::open(&config(&folder), clock()).unwrap_err();
    assert_eq!(
        again.to_string(),
        refused.to_string(),
        "the first refusal changed nothing"
    );
    drop(store);
    drop(open(&config(&folder)));
}

#[tokio::test]
async fn another_name_of_the_file_leads_to_the_same_lock() {
    let (_store, folder) = store();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(folder.path().join("echo.db"), &link).unwrap();
    let config = DuckDbConfig::new(link);
    let refused = DuckDbStore::open(&config, clock());
    assert!(matches!(refused, Err(StoreError::Locked { .. })));
}

#[tokio::test]
async fn the_table_of_batches_is_compacted() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let store = open(&config);
    for number in 1..=20 {
        store.append(batch(number, Vec::new())).await.unwrap();
    }
    drop(store);
    let store = open(&config);
    let rows: Vec<i64> = column(&store, "SELECT count(*) FROM ingested_batches").await;
    assert_eq!(rows, [1]);
    for number in 1..=20 {
        let again = store.append(batch(number, Vec::new())).await.unwrap();
        assert_eq!(again, Appended::Duplicate, "{number}");
    }
    assert_eq!(schema_version(&config.path).unwrap(), 1);
}
