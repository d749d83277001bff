//! A lake whose catalog is a file, which needs the extension of DuckDB only: every acknowledged
//! event is in it once, and answers are those without a lake. `clients::lake` repeats this with
//! `PostgreSQL` and several instances.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use duckdb::Connection;
use fleet_test_harness::Need;
use serde_json::Value;

use crate::crash::{AGENTS, agents, check, kill_under_load, one_round};
use crate::load::{STRIDE, Sent, mixed, request, send, sender};
use crate::testbed::{ECHO, Echo, repository, wait_for};

pub(crate) mod maintenance;
pub(crate) mod reader;

/// Extensions of DuckDB, which are fetched once.
pub(crate) static EXTENSIONS: Need = Need::new("extensions", || extensions().err());

/// Rounds in which Echo is killed.
const ROUNDS: usize = 6;

/// Returns the folder of the extensions of DuckDB.
fn extensions() -> Result<String, String> {
    let mut fetch = Command::new(repository("echo/get-duckdb"));
    let fetched = fetch.arg("--extensions").output().unwrap();
    let [folder, log] =
        [fetched.stdout, fetched.stderr].map(|text| String::from_utf8(text).unwrap());
    if fetched.status.success() {
        return Ok(folder.trim().to_owned());
    }
    let reason = log.lines().last().unwrap_or_default();
    Err(format!("no extensions of DuckDB ({reason})"))
}

/// A lake and the flags for it.
pub(crate) struct Lake {
    pub(crate) flags: Vec<String>,
    pub(crate) extensions: String,
    pub(crate) catalog: String,
    pub(crate) data: String,
    /// Address of the object store; empty for a folder.
    pub(crate) endpoint: String,
}

impl Lake {
    /// A lake whose catalog is a file, in a folder with its data. One process at a time opens it.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let catalog = format!("ducklake:{}", folder.join("catalog").display());
        Self::new(catalog, folder)
    }

    /// A lake whose data is in a folder.
    pub(crate) fn new(catalog: String, folder: &Path) -> Self {
        let data = folder.join("data").display().to_string();
        Self::at(catalog, data)
    }

    pub(crate) fn at(catalog: String, data: String) -> Self {
        let extensions = extensions().unwrap();
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
    pub(crate) fn serve(&self, db: &Path) -> Echo {
        self.serve_with(db, &[])
    }

    /// The same, with more flags.
    pub(crate) fn serve_with(&self, db: &Path, more: &[&str]) -> Echo {
        let flags = self.flags.iter().map(String::as_str);
        let flags: Vec<&str> = flags
            .chain(["--lake-every", "1s", "--ballast", "off"])
            .chain(more.iter().copied())
            .collect();
        Echo::serve_with(db, &flags)
    }

    /// Runs a command for the lake. Returns whether it succeeded, and its answer.
    pub(crate) fn command(&self, name: &str) -> (bool, Value) {
        let output = Command::new(ECHO)
            .args(["lake", name, "--json"])
            .args(&self.flags)
            .output()
            .unwrap();
        let answer = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        (output.status.success(), answer)
    }

    /// Opens the lake as `lake` in an engine without Echo.
    #[expect(
        clippy::disallowed_methods,
        reason = "reads what Echo wrote, without Echo"
    )]
    pub(crate) fn opened(&self, options: &str) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        for name in ["ducklake", "postgres_scanner", "httpfs"] {
            let load = format!("LOAD '{}/{name}.duckdb_extension'", self.extensions);
            connection.execute_batch(&load).unwrap();
        }
        if !self.endpoint.is_empty() {
            let secret = format!(
                "CREATE SECRET (TYPE s3, KEY_ID 'echo', SECRET 'secret', REGION 'us-east-1',
                 ENDPOINT '{}', URL_STYLE 'path', USE_SSL false)",
                self.endpoint.trim_start_matches("http://")
            );
            connection.execute_batch(&secret).unwrap();
        }
        let attach = format!(
            "ATTACH '{}' AS lake (DATA_PATH '{}'{options})",
            self.catalog, self.data
        );
        connection.execute_batch(&attach).unwrap();
        connection
    }

    /// Returns the numbers of points and of distinct points of each batch.
    pub(crate) fn counted(&self) -> BTreeMap<u64, (u64, u64)> {
        let connection = self.opened(", READ_ONLY");
        let count = format!(
            "SELECT (number // {STRIDE})::UBIGINT, count(*)::UBIGINT, count(DISTINCT number)::UBIGINT
             FROM lake.events WHERE metric_name = 'load.point' GROUP BY 1"
        );
        let mut statement = connection.prepare(&count).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))));
        rows.unwrap().map(Result::unwrap).collect()
    }
}

/// Returns the value of a metric without labels.
pub(crate) fn metric(echo: &Echo, name: &str) -> f64 {
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
pub(crate) fn copied(echo: &Echo) {
    let has_copied = first_slice(echo);
    wait_for("the lake to have all events", || {
        has_copied() && metric(echo, "echo_lake_behind_events") == 0.0
    });
}

/// Time after which an instance that is not behind had nothing to copy: it was killed right after a
/// slice.
const NOTHING_LEFT_AFTER: Duration = Duration::from_secs(10);

/// Returns a test for whether an instance that has just started has copied a slice, or has nothing to
/// copy.
#[expect(
    clippy::disallowed_methods,
    reason = "the condition lies in another process"
)]
fn first_slice(echo: &Echo) -> impl Fn() -> bool {
    let begun = Instant::now();
    move || {
        metric(echo, "echo_lake_slices_total") > 0.0
            || begun.elapsed() > NOTHING_LEFT_AFTER
                && metric(echo, "echo_lake_behind_events") == 0.0
    }
}

/// Asserts that `lake verify` finds this many events of one instance and no problem.
pub(crate) fn assert_consistent(lake: &Lake, events: u64) {
    let (is_consistent, verification) = lake.command("verify");
    assert!(is_consistent, "{verification}");
    assert_eq!(verification["problems"], serde_json::json!([]));
    let instances = verification["instances"].as_array().unwrap();
    assert_eq!(instances.len(), 1, "{verification}");
    assert_eq!(instances[0]["events"], events, "{verification}");
    assert_eq!(instances[0]["missing_events"], 0, "{verification}");
}

#[test]
#[needs(EXTENSIONS)]
fn acknowledged_events_are_once_in_the_lake_after_repeated_kills() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::in_folder(folder.path());
    let db = folder.path().join("fleet.duckdb");
    let mut agents = agents("load", 0..AGENTS);
    let seed = u64::from(std::process::id());
    for round in 0..ROUNDS {
        let echo = lake.serve(&db);
        if round % 2 == 1 {
            wait_for("a slice", first_slice(&echo));
        }
        one_round(echo, &mut agents, mixed(seed + round as u64));
    }
    let echo = lake.serve(&db);
    copied(&echo);
    assert_eq!(echo.terminate(), 0);
    let stored = lake.counted();
    check(&agents, &stored, ROUNDS);
    assert_consistent(&lake, stored.values().map(|(all, _)| all).sum());
}

#[test]
#[needs(EXTENSIONS)]
fn a_slice_of_which_only_some_files_were_stored_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::in_folder(folder.path());
    let db = folder.path().join("fleet.duckdb");
    let data = folder.path().join("data/main");
    std::fs::create_dir_all(&data).unwrap();
    // The rows of a slice can be stored, but not the row that makes them a slice.
    std::fs::write(data.join("slices"), "").unwrap();
    let mut agents = agents("load", 0..AGENTS);
    kill_under_load(lake.serve(&db), &mut agents, |echo, _| {
        wait_for("the slice to be torn", || {
            metric(echo, "echo_lake_failures_total") > 0.0
        });
    });
    assert!(
        data.join("event_rows").is_dir(),
        "no file of the slice was stored"
    );
    std::fs::remove_file(data.join("slices")).unwrap();
    let echo = lake.serve(&db);
    copied(&echo);
    assert_eq!(echo.terminate(), 0);
    let stored = lake.counted();
    check(&agents, &stored, 0);
    assert_consistent(&lake, stored.values().map(|(all, _)| all).sum());
}

#[test]
#[needs(EXTENSIONS)]
fn a_slice_that_is_there_twice_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::in_folder(folder.path());
    let echo = lake.serve(&folder.path().join("fleet.duckdb"));
    let sent = send(&sender(), &echo.otlp_http, "agent-1", 1, &request(1, 500));
    assert_eq!(sent, Sent::Acknowledged);
    copied(&echo);
    assert_eq!(echo.terminate(), 0);
    assert_consistent(&lake, 500);
    let (_, status) = lake.command("status");
    assert_eq!(status["instances"][0]["last_event"], 500, "{status}");
    lake.opened("")
        .execute_batch("INSERT INTO lake.event_rows SELECT * FROM lake.event_rows LIMIT 7")
        .unwrap();
    let (is_consistent, verification) = lake.command("verify");
    assert!(!is_consistent);
    let problems = verification["problems"].to_string();
    assert!(
        problems.contains("507 rows") && problems.contains("7 rows twice"),
        "{problems}"
    );
}

#[test]
#[needs(EXTENSIONS)]
fn an_older_copy_of_a_database_is_not_copied_over_the_newer_slices() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::in_folder(folder.path());
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
    let mut accept = Command::new(ECHO);
    accept.args(["repair", "--accept-loss", "--db"]).arg(&db);
    assert!(accept.status().unwrap().success());
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
