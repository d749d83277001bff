//! Long queries concurrent with incoming batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{clock, config};
use crate::contract::sample::{batch, origin, wait};
use crate::duckdb::connection_pool::Reader;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::query::Query;
use crate::duckdb::{DuckDbConfig, DuckDbStore};
use crate::{Appended, EventStore};

/// Endless rows, one batch after the other.
const ENDLESS: &str = "SELECT hash(range) FROM range(1000000000000)";

const READERS: u32 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_acknowledged_while_every_reader_is_busy() {
    let folder = tempfile::tempdir().unwrap();
    let config = DuckDbConfig {
        readers: READERS,
        ..config(&folder)
    };
    let store = Arc::new(DuckDbStore::open(&config, clock()).unwrap());
    let (begun, mut begins) = mpsc::channel(READERS as usize);
    let enough = Arc::new(AtomicBool::new(false));
    let mut queries = JoinSet::new();
    for _ in 0..READERS {
        let (store, begun) = (Arc::clone(&store), begun.clone());
        let enough = Arc::clone(&enough);
        queries.spawn(async move {
            let read = move |reader: &Reader| read(reader, &begun, &enough);
            store.readers.run("testing", read).await
        });
    }
    for _ in 0..READERS {
        begins.recv().await.unwrap();
    }
    let rank = origin("prod", "node-1", 0);
    for number in 1..=10 {
        let events = vec![wait(&rank, 10); 20];
        let appended = store.append(batch(number, events)).await.unwrap();
        assert_eq!(appended, Appended::Stored { events: 20 });
    }
    assert!(queries.try_join_next().is_none(), "all are still running");
    enough.store(true, Ordering::Relaxed);
    while let Some(answered) = queries.join_next().await {
        assert!(answered.unwrap().is_err(), "it was interrupted");
    }
    store.close().await.unwrap();
}

/// Reads until `enough` is set; reports when it has read something.
fn read(reader: &Reader, begun: &mpsc::Sender<()>, enough: &AtomicBool) -> EngineResult<()> {
    let mut begun = Some(begun);
    let query = Query {
        sql: ENDLESS.to_owned(),
        values: Vec::new(),
    };
    reader.each_batch(&query, |_rows| {
        if let Some(begun) = begun.take() {
            begun.blocking_send(()).unwrap();
        }
        if enough.load(Ordering::Relaxed) {
            Err(duckdb::Error::InvalidQuery)
        } else {
            Ok(())
        }
    })
}
