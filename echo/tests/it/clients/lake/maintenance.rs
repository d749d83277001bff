//! Maintenance of a lake that two instances share.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::UNIX_EPOCH;

use fleet_test_harness::NIGHTLY;

use super::postgres::{POSTGRES, Postgres};
use crate::lake::maintenance::{ALWAYS, OFF, append, runs, used_files};
use crate::lake::{EXTENSIONS, Lake, metric};
use crate::testbed::{Echo, wait_for};

/// Number of Parquet files in a folder and those below it.
fn stored_files(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let files = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => stored_files(&entry.path()),
        _ => u64::from(entry.path().extension().is_some_and(|end| end == "parquet")),
    });
    files.sum()
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn one_of_two_instances_merges_small_files_and_the_rows_stay_the_same() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    let databases = ["one.duckdb", "two.duckdb"].map(|name| folder.path().join(name));
    let mut batch = 0;
    for db in &databases {
        let echo = lake.serve_with(db, &OFF);
        for _ in 0..3 {
            batch += 1;
            append(&echo, batch);
        }
        assert_eq!(echo.terminate(), 0);
    }
    let (many, counted) = (used_files(&lake), lake.counted());
    assert!(many >= 12, "{many} files");
    assert_eq!(counted.len(), 6);

    let hourly = ["--lake-maintenance-every", "1h"];
    let instances = databases.each_ref().map(|db| lake.serve_with(db, &hourly));
    let total = || instances.iter().map(runs).sum::<f64>();
    wait_for("the maintenance", || total() > 0.0);
    for (echo, batch) in instances.iter().zip(7..) {
        append(echo, batch);
    }
    assert!((total() - 1.0).abs() < 0.1, "one run an hour: {}", total());
    assert_eq!(
        instances.map(Echo::terminate),
        [0, 0],
        "both end after their commits"
    );
    let mut more = counted;
    more.extend((7..9).map(|batch| (batch, (100, 100))));
    assert_eq!(lake.counted(), more);

    let orphan = folder.path().join("data/main/event_rows/torn.parquet");
    fs::write(&orphan, "torn").unwrap();
    let long_ago = fs::File::options().write(true).open(&orphan).unwrap();
    long_ago.set_modified(UNIX_EPOCH).unwrap();
    let echo = lake.serve_with(&databases[0], &ALWAYS);
    wait_for("unused files to be deleted", || {
        stored_files(&folder.path().join("data")) == used_files(&lake)
    });
    assert!(!orphan.exists());
    let few = used_files(&lake);
    assert!(few <= many / 2, "{many} files became {few}");
    assert!(metric(&echo, "echo_lake_deleted_files_total") > 0.0);
    drop(echo);
    assert_eq!(lake.counted(), more);
    let (is_consistent, verification) = lake.command("verify");
    assert!(is_consistent, "{verification}");
}

/// A client of `PostgreSQL` with a name, killed on drop.
struct Holder(Child);

impl Holder {
    fn start(postgres: &Postgres, name: &str) -> Self {
        let mut client = postgres.client();
        client.env("PGAPPNAME", name);
        let client = client.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let holder = Self(client.unwrap());
        let open =
            format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'");
        wait_for("the client to connect", || postgres.query(&open) == "1");
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn the_lease_of_a_killed_instance_passes_on() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    let db = folder.path().join("fleet.duckdb");
    let echo = lake.serve_with(&db, &ALWAYS);
    append(&echo, 1);
    wait_for("the first run", || runs(&echo) > 0.0);
    assert_eq!(echo.terminate(), 0);

    let holder = Holder::start(&postgres, "fleet-echo-other-1");
    postgres.query(
        "UPDATE fleet_echo_leases SET holder = 'fleet-echo-other-1', done = '-infinity',
         deadline = clock_timestamp() + interval '1 hour'",
    );
    let echo = lake.serve_with(&db, &ALWAYS);
    for batch in 2..5 {
        append(&echo, batch);
    }
    assert!(runs(&echo) < 0.1, "another instance has the lease");
    drop(holder);
    wait_for("the lease to pass on", || runs(&echo) > 0.0);

    let still_there = Holder::start(&postgres, "fleet-echo-other-2");
    let before = runs(&echo);
    postgres.query(
        "UPDATE fleet_echo_leases SET holder = 'fleet-echo-other-2', done = '-infinity',
         deadline = clock_timestamp() - interval '1 s'",
    );
    wait_for("the lease to pass on at its deadline", || {
        runs(&echo) > before
    });
    drop(still_there);
    assert!(metric(&echo, "echo_lake_maintenance_failures_total") < 0.1);
}
