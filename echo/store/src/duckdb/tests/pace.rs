//! Sharing of commits by batches.

use std::time::Duration;

use super::{config, open};
use crate::contract::sample::{batch, origin, wait};
use crate::duckdb::{DuckDbConfig, DuckDbStore};
use crate::{Appended, EventStore};

/// Store whose commits never become due during a test; they start when nothing has arrived for
/// `quiet`.
fn slow(folder: &tempfile::TempDir, quiet: Duration) -> DuckDbStore {
    open(&DuckDbConfig {
        commit_every: Duration::from_hours(1),
        commit_after_quiet: quiet,
        ..config(folder)
    })
}

#[tokio::test]
async fn batches_between_two_commits_share_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = slow(&folder, Duration::from_secs(1));
    let mut committed = store.committed();
    let one = |number| store.append(batch(number, vec![wait(&origin("prod", "node-1", 0), 10)]));
    assert_eq!(one(1).await.unwrap(), Appended::Stored { events: 1 });
    assert_eq!(
        *committed.borrow_and_update(),
        1,
        "the first batch is committed at once"
    );
    let steps = async {
        committed.changed().await.unwrap();
        *committed.borrow_and_update()
    };
    let (second, third, again, fourth, step) = tokio::join!(one(2), one(3), one(2), one(4), steps);
    assert_eq!(step, 4, "three batches, one commit");
    for stored in [second, third, fourth] {
        assert_eq!(stored.unwrap(), Appended::Stored { events: 1 });
    }
    assert_eq!(again.unwrap(), Appended::Duplicate, "also within a commit");
}

#[tokio::test]
async fn a_sender_that_waits_for_each_acknowledgement_is_not_delayed_by_the_commit_interval() {
    let folder = tempfile::tempdir().unwrap();
    let store = slow(&folder, Duration::from_millis(1));
    for number in 1..=20 {
        let one = batch(number, vec![wait(&origin("prod", "node-1", 0), 10)]);
        let stored = store.append(one).await;
        assert_eq!(stored.unwrap(), Appended::Stored { events: 1 });
    }
}

#[tokio::test]
async fn a_closing_store_commits_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let store = slow(&folder, Duration::from_secs(1));
    let one = |number| store.append(batch(number, vec![wait(&origin("prod", "node-1", 0), 10)]));
    one(1).await.unwrap();
    let (second, closed) = tokio::join!(biased; one(2), store.close());
    assert_eq!(second.unwrap(), Appended::Stored { events: 1 });
    closed.unwrap();
    drop(store);
    assert_eq!(*open(&config(&folder)).committed().borrow(), 2);
}
