//! Lakes with a catalog in `PostgreSQL` and data in an object store, while Echo and `PostgreSQL` are
//! killed: every acknowledged event is there once.

use std::collections::BTreeMap;
use std::path::Path;

use fleet_test_harness::{NIGHTLY, PYPI};

use self::object_store::ObjectStore;
use self::postgres::{POSTGRES, Postgres};
use super::{client, done, python_with};
use crate::crash::{AGENTS, agents, check, one_round};
use crate::lake::{EXTENSIONS, Lake, assert_consistent, copied, metric};
use crate::load::{STRIDE, Sent, mixed, request, send, sender};
use crate::testbed::wait_for;

mod failures;
mod fleet;
mod maintenance;
mod object_store;
mod postgres;
mod read_only;
mod week;

/// Packages for Python.
const DUCKDB: [&str; 1] = ["duckdb==1.5.5"];

/// Rounds in which Echo is killed.
const ROUNDS: usize = 10;

/// A lake whose data is in an object store.
fn in_bucket(catalog: String, folder: &Path, store: &ObjectStore) -> Lake {
    let mut lake = Lake::at(catalog, "s3://bucket/lake".to_owned());
    let keys = folder.join("keys");
    let lines = [
        "AWS_ACCESS_KEY_ID=echo",
        "AWS_SECRET_ACCESS_KEY=secret",
        "AWS_REGION=us-east-1",
        &format!("AWS_ENDPOINT_URL={}", store.url),
    ];
    std::fs::write(&keys, lines.join("\n")).unwrap();
    lake.flags.push("--lake-s3-key-file".to_owned());
    lake.flags.push(keys.display().to_string());
    lake.endpoint.clone_from(&store.url);
    lake
}

/// Returns the numbers of points and of distinct points of each batch, as Python counts them.
fn counted_by_python(lake: &Lake) -> BTreeMap<u64, (u64, u64)> {
    let mut count = python_with(&DUCKDB, "python");
    count.arg(client("lake.py"));
    count.args([
        &lake.extensions,
        &lake.catalog,
        &lake.data,
        &STRIDE.to_string(),
        &lake.endpoint,
    ]);
    let rows = done(&mut count, "DuckDB for Python cannot read the lake").stdout;
    let rows: Vec<(u64, u64, u64)> = serde_json::from_slice(&rows).unwrap();
    rows.into_iter()
        .map(|(batch, all, distinct)| (batch, (all, distinct)))
        .collect()
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn acknowledged_events_are_once_in_the_lake_after_kills_of_echo_and_postgres() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    let db = folder.path().join("fleet.duckdb");
    let mut agents = agents("load", 0..AGENTS);
    let seed = u64::from(std::process::id());
    for round in 0..ROUNDS {
        let echo = lake.serve(&db);
        if round % 3 == 2 {
            // The slice that is being committed is torn.
            wait_for("a slice", || {
                metric(&echo, "echo_lake_behind_events") == 0.0
            });
            postgres.crash();
            postgres.run();
        }
        one_round(echo, &mut agents, mixed(seed + round as u64));
    }
    let echo = lake.serve(&db);
    copied(&echo);
    let stored = lake.counted();
    let unanswered = check(&agents, &stored, ROUNDS);
    println!(
        "{} batches, {unanswered} of them without a response (seed {seed})",
        stored.len()
    );
    assert_consistent(&lake, stored.values().map(|(all, _)| all).sum());
    drop(echo);
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn while_the_lake_is_away_events_are_accepted_and_copied_later() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    let echo = lake.serve(&folder.path().join("fleet.duckdb"));
    let sender = sender();
    let append = |batch: u64| {
        let body = request(batch, 1_000);
        let sent = send(&sender, &echo.otlp_http, "agent-1", batch, &body);
        assert_eq!(sent, Sent::Acknowledged);
    };
    append(1);
    copied(&echo);
    postgres.crash();
    append(2);
    wait_for("a failed commit", || {
        metric(&echo, "echo_lake_failures_total") > 0.0
    });
    append(3);
    wait_for("two batches to wait", || {
        metric(&echo, "echo_lake_behind_events") >= 2_000.0
    });
    assert!(metric(&echo, "echo_lake_behind_seconds") > 0.0);
    let ready = ureq::get(format!("http://{}/readyz", echo.http))
        .call()
        .unwrap();
    assert_eq!(ready.status(), 200);
    postgres.run();
    copied(&echo);
    assert_consistent(&lake, 3_000);
    assert_eq!(
        lake.counted(),
        (1..4).map(|batch| (batch, (1_000, 1_000))).collect()
    );
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, PYPI)]
fn the_data_of_a_lake_is_in_an_object_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = ObjectStore::start();
    let catalog = folder.path().join("catalog");
    let catalog = format!("ducklake:{}", catalog.display());
    let lake = in_bucket(catalog, folder.path(), &store);
    let echo = lake.serve(&folder.path().join("fleet.duckdb"));
    let sent = send(&sender(), &echo.otlp_http, "agent-1", 1, &request(1, 500));
    assert_eq!(sent, Sent::Acknowledged);
    copied(&echo);
    assert_eq!(echo.terminate(), 0);
    assert_consistent(&lake, 500);
    assert_eq!(counted_by_python(&lake), lake.counted());
    assert!(!folder.path().join("data").exists(), "nothing is beside it");
}
