//! Statements read the file while the store writes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use echo_core::clock::ManualClock;
use echo_core::model::event::Reading;
use serde_json::json;
use tokio::sync::Semaphore;

use super::{Lab, query};
use crate::EventStore;
use crate::contract::sample::{at, batch, gauge, origin};
use crate::duckdb::offline::backup::backup;
use crate::duckdb::{DuckDbConfig, DuckDbStore};
use crate::limits::Limits;

const METRIC: &str = "fleet.rank.period_ms";
/// Events per batch.
const EVENTS: u64 = 100;
/// Least number of statements beside a writer.
const STATEMENTS: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_sees_what_was_committed_before_it() {
    let lab = Lab::new().await;
    let rank = origin("prod", "node-1", 1);
    let text = format!("SELECT count(*) FROM events WHERE metric_name = '{METRIC}'");
    let count = || async { lab.run(&text).await.unwrap().rows[0][0].as_u64().unwrap() };
    let mut expected = count().await;
    for (number, time) in (2..).zip(50_000..50_020) {
        let event = gauge(&rank, METRIC, time, Reading::Double(40.0));
        lab.store.append(batch(number, vec![event])).await.unwrap();
        expected += 1;
        assert_eq!(count().await, expected);
    }
}

/// Store that checkpoints all the time.
fn restless() -> (DuckDbStore, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = DuckDbConfig {
        checkpoint_every: Duration::from_millis(20),
        limits: Limits::default().without_retention(),
        ..DuckDbConfig::new(folder.path().join("echo.db"))
    };
    let clock = ManualClock::at(at(60_000));
    let store = DuckDbStore::open(&config, Arc::new(clock)).unwrap();
    (store, folder)
}

/// Batches that are written beside each statement or copy. Without a limit a slow machine would write more the longer
/// a statement takes, and each statement reads the whole log.
const BESIDE_EACH: usize = 50;

/// Writes batches, one after the other, until `permits` is closed.
struct Writing {
    /// Number of the last batch that was acknowledged.
    acknowledged: AtomicU64,
    /// One for each batch that may be written.
    permits: Semaphore,
}

impl Writing {
    fn new() -> Self {
        Self {
            acknowledged: AtomicU64::new(0),
            permits: Semaphore::new(BESIDE_EACH),
        }
    }

    /// Lets it write beside the next statement or copy.
    fn go_on(&self) {
        let written = BESIDE_EACH.saturating_sub(self.permits.available_permits());
        self.permits.add_permits(written);
    }

    async fn write(&self, store: &DuckDbStore) {
        let rank = origin("prod", "node-1", 1);
        for number in 1_u64.. {
            let Ok(permit) = self.permits.acquire().await else {
                break;
            };
            permit.forget();
            let times = (0..EVENTS).map(|event| (number * EVENTS + event).cast_signed());
            let events = times.map(|time| gauge(&rank, METRIC, time, Reading::Double(40.0)));
            store.append(batch(number, events.collect())).await.unwrap();
            self.acknowledged.store(number, Ordering::Release);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_beside_commits_and_checkpoints_have_whole_batches_and_none_is_missing() {
    let (store, folder) = restless();
    let writer = Writing::new();
    let copy = async {
        for copy in 0..10 {
            let target = folder.path().join(format!("{copy}.duckdb"));
            let before = writer.acknowledged.load(Ordering::Acquire);
            let db = folder.path().join("echo.db");
            let copying = move || backup(&db, &target, &ManualClock::at(at(60_000)));
            let made = tokio::task::spawn_blocking(copying).await.unwrap().unwrap();
            assert!(made.contents.events >= before * EVENTS, "{made:?} {before}");
            assert_eq!(made.contents.events % EVENTS, 0);
            writer.go_on();
        }
        writer.permits.close();
    };
    tokio::join!(writer.write(&store), copy);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_beside_commits_and_checkpoints_see_whole_batches_and_none_is_missing() {
    let (store, _folder) = restless();
    let empty = store.vitals().database_bytes;
    let writer = Writing::new();
    let whole = "SELECT count(*), count(DISTINCT timestamp_ns) FROM events";
    let read = async {
        let mut statements = 0;
        // Until a checkpoint has written to the file.
        while statements < STATEMENTS || store.vitals().database_bytes <= empty {
            let before = writer.acknowledged.load(Ordering::Acquire);
            let rows = store.run_sql(query(whole)).await.unwrap().rows;
            let batches = rows[0][0].as_u64().unwrap() / EVENTS;
            assert!(batches >= before, "{batches} of {before}");
            assert_eq!(rows[0][..2], vec![json!(batches * EVENTS); 2]);
            statements += 1;
            writer.go_on();
        }
        writer.permits.close();
    };
    tokio::join!(writer.write(&store), read);
    store.close().await.unwrap();
}
