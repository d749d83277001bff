//! A lake with a real `PostgreSQL`, read by a plain DuckDB for Python, while Echo and `PostgreSQL`
//! are killed: every acknowledged event is there once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use self::object_store::ObjectStore;
use self::postgres::Postgres;
use super::{client, done, python_with};
use crate::crash::{AGENTS, agents, check, one_round};
use crate::load::{STRIDE, Sent, mixed, request, send, sender};
use crate::testbed::{ECHO, Echo, repository, wait_for};

mod failures;
mod fleet;
mod hot_and_cold;
mod maintenance;
mod object_store;
mod postgres;
mod read_only;
mod week;

/// Packages for Python.
const DUCKDB: [&str; 1] = ["duckdb==1.5.5"];

/// Rounds in which Echo is killed.
const ROUNDS: usize = 10;

/// A lake and the flags for it.
struct Lake {
    flags: Vec<String>,
    extensions: String,
    catalog: String,
    data: String,
    /// URL of the object store; empty for a folder.
    endpoint: String,
}

impl Lake {
    /// A lake whose data is in a folder.
    fn new(catalog: String, folder: &Path) -> Self {
        let data = folder.join("data").display().to_string();
        Self::at(catalog, data)
    }

    /// A lake whose data is in an object store.
    fn in_bucket(catalog: String, folder: &Path, store: &ObjectStore) -> Self {
        let mut lake = Self::at(catalog, "s3://bucket/lake".to_owned());
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

    fn at(catalog: String, data: String) -> Self {
        let mut extensions = Command::new(repository("echo/get-duckdb"));
        let extensions = done(extensions.arg("--extensions"), "no extensions of DuckDB");
        let extensions = String::from_utf8(extensions.stdout)
            .unwrap()
            .trim()
            .to_owned();
        let flags = [
            "--lake",
            &catalog,
            "--lake-data",
            &data,
            "--duckdb-extensions",
            &extensions,
        ];
        Self {
            flags: flags.map(str::to_owned).to_vec(),
            extensions,
            catalog,
            data,
            endpoint: String::new(),
        }
    }

    /// Starts Echo on the database, with a commit to the lake every second.
    fn serve(&self, db: &Path) -> Echo {
        self.serve_with(db, &[])
    }

    /// The same, with more flags.
    fn serve_with(&self, db: &Path, more: &[&str]) -> Echo {
        let flags = self.flags.iter().map(String::as_str);
        let flags: Vec<&str> = flags
            .chain(["--lake-every", "1s", "--ballast", "off"])
            .chain(more.iter().copied())
            .collect();
        Echo::serve_with(db, &flags)
    }

    /// Runs a command for the lake. Returns whether it succeeded, and its answer.
    fn command(&self, name: &str) -> (bool, Value) {
        let output = Command::new(ECHO)
            .args(["lake", name, "--json"])
            .args(&self.flags)
            .output()
            .unwrap();
        let answer = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        (output.status.success(), answer)
    }

    /// Returns the numbers of points and of distinct points of each batch, as Python counts them.
    fn counted(&self) -> BTreeMap<u64, (u64, u64)> {
        let mut count = python_with(&DUCKDB, "python");
        count.arg(client("lake.py"));
        count.args([
            &self.extensions,
            &self.catalog,
            &self.data,
            &STRIDE.to_string(),
            &self.endpoint,
        ]);
        let rows = done(&mut count, "DuckDB for Python cannot read the lake").stdout;
        let rows: Vec<(u64, u64, u64)> = serde_json::from_slice(&rows).unwrap();
        rows.into_iter()
            .map(|(batch, all, distinct)| (batch, (all, distinct)))
            .collect()
    }
}

/// Returns the value of a metric without labels.
fn metric(echo: &Echo, name: &str) -> f64 {
    let url = format!("http://{}/metrics", echo.http);
    let text = ureq::get(&url)
        .call()
        .unwrap()
        .body_mut()
        .read_to_string()
        .unwrap();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .parse()
        .unwrap()
}

/// Waits until the lake has everything.
fn copied(echo: &Echo) {
    wait_for("the lake to have all events", || {
        metric(echo, "echo_lake_slices_total") > 0.0
            && metric(echo, "echo_lake_behind_events") == 0.0
    });
}

fn assert_consistent(lake: &Lake, events: u64) {
    let (is_consistent, verification) = lake.command("verify");
    assert!(is_consistent, "{verification}");
    assert_eq!(verification["problems"], serde_json::json!([]));
    let instances = verification["instances"].as_array().unwrap();
    assert_eq!(instances.len(), 1, "{verification}");
    assert_eq!(instances[0]["events"], events, "{verification}");
    assert_eq!(instances[0]["missing_events"], 0, "{verification}");
}

#[test]
#[ignore = "installs packages: make clients"]
fn acknowledged_events_are_once_in_the_lake_after_kills_of_echo_and_postgres() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
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
#[ignore = "installs packages: make clients"]
fn while_the_lake_is_away_events_are_accepted_and_copied_later() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
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
#[ignore = "installs packages: make clients"]
fn a_slice_that_is_there_twice_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(
        format!("ducklake:{}", folder.path().join("catalog").display()),
        folder.path(),
    );
    let echo = lake.serve(&folder.path().join("fleet.duckdb"));
    let sent = send(&sender(), &echo.otlp_http, "agent-1", 1, &request(1, 500));
    assert_eq!(sent, Sent::Acknowledged);
    copied(&echo);
    assert_eq!(echo.terminate(), 0);
    assert_consistent(&lake, 500);
    let (_, status) = lake.command("status");
    assert_eq!(status["instances"][0]["last_event"], 500, "{status}");
    let again = "import sys, duckdb
c = duckdb.connect()
c.execute(f\"LOAD '{sys.argv[1]}/ducklake.duckdb_extension'\")
c.execute(f\"ATTACH '{sys.argv[2]}' AS lake (DATA_PATH '{sys.argv[3]}/')\")
c.execute('INSERT INTO lake.event_rows SELECT * FROM lake.event_rows LIMIT 7')";
    let mut insert = python_with(&DUCKDB, "python");
    insert.args(["-c", again, &lake.extensions, &lake.catalog, &lake.data]);
    done(&mut insert, "DuckDB for Python cannot write to the lake");
    let (is_consistent, verification) = lake.command("verify");
    assert!(!is_consistent);
    let problems = verification["problems"].to_string();
    assert!(
        problems.contains("507 rows") && problems.contains("7 rows twice"),
        "{problems}"
    );
}

#[test]
#[ignore = "installs packages: make clients"]
fn an_older_copy_of_a_database_is_not_copied_over_the_newer_slices() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = folder.path().join("catalog");
    let lake = Lake::new(format!("ducklake:{}", catalog.display()), folder.path());
    let db = folder.path().join("fleet.duckdb");
    let backup = folder.path().join("backup.duckdb");
    let sender = sender();
    for batch in 1..3 {
        let echo = lake.serve(&db);
        let sent = send(
            &sender,
            &echo.otlp_http,
            "agent-1",
            batch,
            &request(batch, 500),
        );
        assert_eq!(sent, Sent::Acknowledged);
        copied(&echo);
        assert_eq!(echo.terminate(), 0);
        if batch == 1 {
            std::fs::copy(&db, &backup).unwrap();
        }
    }
    std::fs::copy(&backup, &db).unwrap();
    let echo = lake.serve(&db);
    wait_for("the copy to be refused", || {
        metric(&echo, "echo_lake_failures_total") > 0.0
    });
    let sent = send(&sender, &echo.otlp_http, "agent-1", 3, &request(3, 500));
    assert_eq!(sent, Sent::Acknowledged);
    assert_eq!(echo.terminate(), 0);
    assert_consistent(&lake, 1_000);
    let expected = [1, 2].map(|batch| (batch, (500, 500)));
    assert_eq!(lake.counted(), expected.into());
}

#[test]
#[ignore = "installs packages: make clients"]
fn the_data_of_a_lake_is_in_an_object_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = ObjectStore::start();
    let catalog = folder.path().join("catalog");
    let catalog = format!("ducklake:{}", catalog.display());
    let lake = Lake::in_bucket(catalog, folder.path(), &store);
    let echo = lake.serve(&folder.path().join("fleet.duckdb"));
    let sent = send(&sender(), &echo.otlp_http, "agent-1", 1, &request(1, 500));
    assert_eq!(sent, Sent::Acknowledged);
    copied(&echo);
    assert_eq!(echo.terminate(), 0);
    assert_consistent(&lake, 500);
    assert!(!folder.path().join("data").exists(), "nothing is beside it");
}
