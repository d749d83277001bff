//! How batches share commits.

use std::time::Duration;

use super::{config, open};
use crate::contract::sample::{batch, origin, wait};
use crate::duckdb::{DuckDbConfig, DuckDbStore};
use crate::{Appended, EventStore};

/// A store whose commits begin so far apart that a test sends whatever it sends in between.
fn slow(folder: &tempfile::TempDir) -> DuckDbStore {
    open(&DuckDbConfig {
        commit_every: Duration::from_secs(3),
        ..config(folder)
    })
}

#[tokio::test]
async fn what_comes_between_two_commits_shares_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = slow(&folder);
    let mut committed = store.committed();
    let one = |number| store.append(batch(number, vec![wait(&origin("prod", "node-1", 0), 10)]));
    assert_eq!(one(1).await.unwrap(), Appended::Stored { events: 1 });
    assert_eq!(
        *committed.borrow_and_update(),
        1,
        "the first waits for nobody"
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
async fn a_store_that_closes_commits_what_waits_for_the_next_commit() {
    let folder = tempfile::tempdir().unwrap();
    let store = slow(&folder);
    let one = |number| store.append(batch(number, vec![wait(&origin("prod", "node-1", 0), 10)]));
    one(1).await.unwrap();
    let (second, closed) = tokio::join!(biased; one(2), store.close());
    assert_eq!(second.unwrap(), Appended::Stored { events: 1 });
    closed.unwrap();
    drop(store);
    assert_eq!(*open(&config(&folder)).committed().borrow(), 2);
}
