#![expect(
    clippy::significant_drop_tightening,
    reason = "a store lives to the end of its test"
)]

mod copied;
mod crowd;
mod durability;
mod entries;
mod followed;
mod growth;
mod held;
mod hours;
mod pace;
mod retention;
mod schema;

use std::path::Path;
use std::sync::Arc;

use duckdb::Connection;
use duckdb::types::FromSql;
use echo_core::clock::ManualClock;
use echo_core::model::detector_output::DetectorOutput;
use echo_core::model::event::Reading;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::connection_pool::Reader;
use super::lock::canonical;
use super::migrations::MIGRATIONS;
use super::open::inspect;
use super::query::Query;
use super::{DuckDbConfig, DuckDbStore};
use crate::contract::sample::{
    at, batch, gauge, incident, incidents, losses, lost, origin, policy, query, wait,
};
use crate::{Appended, EventStore, StoreError};

fn store() -> (DuckDbStore, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (open(&config(&folder)), folder)
}

fn config(folder: &TempDir) -> DuckDbConfig {
    DuckDbConfig::new(folder.path().join("echo.db"))
}

fn open(config: &DuckDbConfig) -> DuckDbStore {
    DuckDbStore::open(config, clock()).unwrap()
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(at(60_000)))
}

fn schema_version(path: &Path) -> Result<i64, StoreError> {
    Ok(inspect(&canonical(path)?, MIGRATIONS)?.version)
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests look at databases from outside"
)]
fn connect(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

/// First column of the result.
async fn column<T: FromSql + Send + 'static>(store: &DuckDbStore, sql: &'static str) -> Vec<T> {
    let read = |reader: &Reader| {
        let mut statement = reader.connection.prepare(sql)?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    store.readers.run("testing", read).await.unwrap()
}

async fn run(store: &DuckDbStore, sql: &'static str) -> Result<(), StoreError> {
    let read = |reader: &Reader| reader.connection.execute_batch(sql);
    store.readers.run("testing", read).await
}

#[tokio::test]
async fn the_view_of_events_shows_names_and_hexadecimal_ids() {
    let (store, _folder) = store();
    let rank = origin("prod", "node-1", 3);
    let count = Reading::Int(7);
    let events = vec![
        wait(&rank, 10),
        gauge(&rank, "fleet.host.launches", 20, count),
    ];
    store.append(batch(1, events)).await.unwrap();
    let rows: Vec<String> = column(
        &store,
        "SELECT concat_ws(' ', event_id, cluster_id, node_id, rank, nranks, metric_name, kind, value_int, comm_id, op,
            role, unit, job, gpu_model, gpu_uuid, namespace, pod)
         FROM events ORDER BY event_id",
    )
    .await;
    let of_rank = "llama H200 GPU-node-1-3 training llama-3";
    assert_eq!(
        rows,
        [
            format!(
                "1 prod node-1 3 64 nccl.collective.wait_ms histogram 06210ed1bd447fe0 AllReduce \
                 ffffffffffffffff ms {of_rank}"
            ),
            format!("2 prod node-1 3 64 fleet.host.launches int 7  {of_rank}"),
        ]
    );
    let samples: Vec<String> = column(
        &store,
        "SELECT concat_ws(' ', rank, op, seq, value, unit) FROM op_waits ORDER BY seq",
    )
    .await;
    assert_eq!(
        samples,
        ["3 AllReduce 66 0.25 ms", "3 AllReduce 70 11.75 ms"]
    );
}

#[tokio::test]
async fn cost_per_hour_is_clipped_per_incident() {
    let (store, _folder) = store();
    let hour = 3_600_000;
    let mut noise = lost(2, "prod", "node-1", (20, 30));
    noise.lost_gpu_ms = -1_000_000.0;
    let mut rows = [
        lost(1, "prod", "node-1", (0, 10)),
        lost(1, "prod", "node-1", (10, 20)),
        lost(1, "prod", "node-1", (hour, hour + 10)),
    ];
    for row in &mut rows {
        row.lost_gpu_ms = 1_800_000.0;
    }
    store.store_verdicts(losses(rows)).await.unwrap();
    store.store_verdicts(losses([noise])).await.unwrap();
    let hours: Vec<f64> = column(
        &store,
        "SELECT lost_gpu_hours FROM cost_hours ORDER BY hour_ns",
    )
    .await;
    assert_eq!(hours, [1.0, 0.5]);
}

#[tokio::test]
async fn every_state_of_an_incident_can_be_audited() {
    let (store, _folder) = store();
    for last_seen in [10, 20] {
        let open = incident(1, "prod", 0, last_seen);
        store.store_verdicts(incidents([open])).await.unwrap();
    }
    let policies = DetectorOutput {
        policies: vec![policy("prod", 1)],
        ..DetectorOutput::default()
    };
    store.store_verdicts(policies).await.unwrap();
    let count = |sql| column::<i64>(&store, sql);
    assert_eq!(count("SELECT count(*) FROM verdict_history").await, [2]);
    let latest = "SELECT revision::BIGINT FROM verdicts";
    assert_eq!(count(latest).await, [2]);
    let policies: Vec<Vec<u8>> = column(
        &store,
        "SELECT encoded FROM policies WHERE cluster_id = 'prod' AND version = 1 AND computed_ns > 1",
    )
    .await;
    assert_eq!(policies, [policy("prod", 1).encoded]);
}

#[tokio::test]
async fn only_transactions_are_measured_as_commits() {
    let (store, _folder) = store();
    let measured = || {
        let mut registry = Registry::default();
        registry.register("commits", "-", store.timings().commits);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text.contains("commits_count 1\n")
    };
    let events = vec![wait(&origin("prod", "node-1", 0), 10)];
    for _ in 0..3 {
        store.append(batch(1, events.clone())).await.unwrap();
        assert!(measured(), "of three groups one needed a transaction");
    }
}

#[tokio::test]
async fn a_failed_batch_can_be_sent_again() {
    let (store, _folder) = store();
    let events = vec![wait(&origin("prod", "node-1", 0), 10)];
    run(&store, "ALTER TABLE sample_rows RENAME TO elsewhere")
        .await
        .unwrap();
    let failed = store.append(batch(1, events.clone())).await;
    assert!(
        matches!(&failed, Err(StoreError::Engine { doing, .. }) if *doing == "adding events"),
        "{failed:?}"
    );
    assert_eq!(*store.committed().borrow(), 0);

    run(&store, "ALTER TABLE elsewhere RENAME TO sample_rows")
        .await
        .unwrap();
    let stored = store.append(batch(1, events.clone())).await.unwrap();
    assert_eq!(stored, Appended::Stored { events: 1 });
    let page = store.events(query(0, 100)).await.unwrap();
    assert_eq!(page.events.len(), 1);
    assert_eq!(page.events[0].id, 1);
    assert_eq!(page.events[0].event, events[0]);
}

#[tokio::test]
async fn nothing_outside_the_database_can_be_reached() {
    let (store, folder) = store();
    let out = folder.path().join("out.csv");
    let copy: &'static str = format!("COPY names TO '{}'", out.display()).leak();
    let attach: &'static str = format!("ATTACH '{}' AS other", out.display()).leak();
    for sql in [
        copy,
        attach,
        "SELECT * FROM read_csv('/proc/self/environ')",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '1TB'",
    ] {
        assert!(run(&store, sql).await.is_err(), "{sql}");
    }
    assert!(!out.exists());
}

/// Undesirable: closing the file again releases the engine's own lock on it. No setting forbids it,
/// so the guard must refuse functions that read files. Echo's own lock is on a separate file and is
/// kept.
#[tokio::test]
async fn the_engine_reads_its_own_file_in_a_statement() {
    let (store, folder) = store();
    let path = config(&folder).path;
    let read: &'static str = format!("FROM read_blob('{}')", path.display()).leak();
    assert!(run(&store, read).await.is_ok());
    let refused = DuckDbStore::open(&config(&folder), clock());
    assert!(matches!(refused, Err(StoreError::Locked { .. })));
}

#[tokio::test]
async fn a_query_without_a_caller_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let one_reader = DuckDbConfig {
        readers: 1,
        ..config(&folder)
    };
    let store = open(&one_reader);
    let (began, begun) = oneshot::channel();
    let mut began = Some(began);
    let endless = Query {
        sql: "SELECT * FROM range(1_000_000_000_000)".to_owned(),
        values: Vec::new(),
    };
    let read = store.readers.run("testing", move |reader| {
        reader.each_batch(&endless, |_| {
            began.take().map(|began| began.send(()));
            Ok(())
        })
    });
    tokio::select! {
        answer = read => panic!("the endless query returned: {answer:?}"),
        _ = begun => {}
    }
    // The only connection is free again, or this would wait forever.
    assert_eq!(store.extent(None).await.unwrap(), None);
}
