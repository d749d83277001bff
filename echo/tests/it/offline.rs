//! `fleet-echo backup`, `export` and `repair`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lake::metric;
use crate::load::{Sent, request, send, sender, stored};
use crate::testbed::{ECHO, Echo, serve_command};

const POINTS: u64 = 50;

/// Runs a subcommand. Returns exit code, standard output and standard error.
fn run(arguments: &[&str], db: &Path) -> (i32, String, String) {
    let mut command = Command::new(ECHO);
    command.args(arguments).arg("--db").arg(db);
    let output = command.output().unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn fill(echo: &Echo, batches: std::ops::RangeInclusive<u64>) {
    let sender = sender();
    for number in batches {
        let sent = send(
            &sender,
            &echo.otlp_http,
            "agent-1",
            number,
            &request(number, POINTS),
        );
        assert_eq!(sent, Sent::Acknowledged);
    }
}

/// Returns the database of a killed instance, whose last batches are only in the write-ahead log.
fn killed() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let echo = Echo::serve(&db);
    fill(&echo, 1..=5);
    assert_eq!(echo.terminate(), 0);
    let echo = Echo::serve(&db);
    fill(&echo, 6..=10);
    echo.kill();
    (folder, db)
}

fn log(db: &Path) -> PathBuf {
    db.with_extension("duckdb.wal")
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none_or(|extension| extension != "lock"))
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Flips a bit in the middle of the log, as faulty memory may do.
fn flip_a_bit(db: &Path) {
    let mut bytes = fs::read(log(db)).unwrap();
    let middle = bytes.len() * 2 / 3;
    bytes[middle] ^= 0x10;
    fs::write(log(db), bytes).unwrap();
}

#[test]
fn a_backup_contains_events_of_the_log_and_does_not_change_the_database() {
    let (folder, db) = killed();
    assert!(log(&db).exists());
    let before = files(folder.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("monday.duckdb");
    let (code, stdout, stderr) = run(&["backup", target.to_str().unwrap(), "--json"], &db);
    assert_eq!(code, 0, "{stderr}");
    assert!(files(folder.path()) == before, "the source was touched");
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["events"], 500, "{answer}");
    assert_eq!(
        fs::read_dir(elsewhere.path()).unwrap().count(),
        1,
        "no log, nothing partial"
    );
    let stored = stored(&target);
    assert_eq!(stored.len(), 10);
    assert!(stored.values().all(|counts| *counts == (POINTS, POINTS)));
    assert_eq!(
        Echo::serve(&target).terminate(),
        0,
        "an instance can serve the backup"
    );

    let (code, _, stderr) = run(&["backup", target.to_str().unwrap()], &db);
    assert_eq!(code, 74, "nothing is replaced: {stderr}");
}

#[test]
fn a_backup_of_a_running_instance_has_what_was_acknowledged_before_and_the_instance_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let echo = Echo::serve(&db);
    fill(&echo, 1..=5);
    let target = folder.path().join("monday.duckdb");
    let (code, stdout, stderr) = thread::scope(|scope| {
        let backup = scope.spawn(|| run(&["backup", target.to_str().unwrap()], &db));
        fill(&echo, 6..=30);
        backup.join().unwrap()
    });
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("verified"), "{stdout}");
    let copied = stored(&target);
    assert!(copied.len() >= 5, "{copied:?}");
    assert!(copied.values().all(|counts| *counts == (POINTS, POINTS)));
    assert_eq!(echo.terminate(), 0);
    assert_eq!(stored(&db).len(), 30);
}

#[test]
fn a_backup_and_an_export_show_on_a_terminal_that_they_are_running() {
    let (folder, db) = killed();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let db_path = db.display();
    for (line, expected) in [
        (format!("backup {}", path("monday.duckdb")), "copying"),
        (format!("export {}", path("export")), "exporting"),
    ] {
        let output = Command::new("script")
            .args(["-q", "-e", "-c", &format!("{ECHO} {line} --db {db_path}")])
            .arg("/dev/null")
            .env("TERM", "xterm-256color")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(text.contains(&format!("{expected} {db_path}")), "{text:?}");
    }
    let (_, _, stderr) = run(&["backup", &path("tuesday.duckdb")], &db);
    assert!(!stderr.contains("copying"), "{stderr}");
}

#[test]
fn offline_commands_are_refused_while_an_instance_uses_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let echo = Echo::serve(&db);
    let target = folder.path().join("target");
    let target = target.to_str().unwrap();
    for arguments in [["export", target], ["repair", "--drop-wal"]] {
        let (code, _, stderr) = run(&arguments, &db);
        assert_eq!(code, 75, "{stderr}");
        assert!(stderr.contains("pid"), "{stderr}");
    }
    assert!(!Path::new(target).exists());
    assert_eq!(echo.terminate(), 0);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "reads Parquet like any other program"
)]
fn an_export_is_parquet_partitioned_by_cluster_and_day() {
    let (_folder, db) = killed();
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("export");
    let (code, stdout, stderr) = run(&["export", target.to_str().unwrap(), "--json"], &db);
    assert_eq!(code, 0, "{stderr}");
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    let events = &answer["partitions"][0];
    assert_eq!(
        (
            &events["dataset"],
            &events["cluster"],
            &events["day"],
            &events["rows"]
        ),
        (
            &"events".into(),
            &"load".into(),
            &"2025-11-21".into(),
            &500.into()
        ),
        "{answer}"
    );
    let other = duckdb::Connection::open_in_memory().unwrap();
    let read = format!(
        "SELECT count(*)::UBIGINT, count(DISTINCT value_int)::UBIGINT, any_value(metric_name), any_value(cluster)
         FROM read_parquet('{}/events/**/*.parquet', hive_partitioning = true)",
        target.display()
    );
    let row: (u64, u64, String, String) = other
        .query_row(&read, [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    assert_eq!(row, (500, 500, "load.point".to_owned(), "load".to_owned()));

    let (code, _, stderr) = run(&["export", target.to_str().unwrap()], &db);
    assert_eq!(code, 74, "the folder is not empty: {stderr}");
    let none = elsewhere.path().join("none");
    let arguments = [
        "export",
        none.to_str().unwrap(),
        "--from",
        "2030-01-01T00:00:00Z",
    ];
    let (code, stdout, _) = run(&arguments, &db);
    assert_eq!(code, 0);
    assert!(stdout.starts_with("no data between"), "{stdout}");
}

#[test]
fn a_flipped_bit_in_the_log_is_reported_and_repaired_without_deleting_anything() {
    let (folder, db) = killed();
    flip_a_bit(&db);
    let before = files(folder.path());
    let output = serve_command(&db).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(65), "{stderr}");
    assert!(stderr.contains("repair --drop-wal --db"), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    assert!(
        files(folder.path()) == before,
        "a refused database was touched"
    );

    let (code, stdout, stderr) = run(&["repair", "--drop-wal", "--json"], &db);
    assert_eq!(code, 0, "{stderr}");
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["changed"], true);
    assert_eq!(
        answer["events"], 250,
        "what was in the database file: {answer}"
    );
    let aside = answer["set_aside"][0]["path"].as_str().unwrap();
    assert!(
        before
            .iter()
            .any(|(_, bytes)| *bytes == fs::read(aside).unwrap()),
        "the log is kept as it was"
    );
    let echo = Echo::serve(&db);
    fill(&echo, 11..=12);
    assert_eq!(echo.terminate(), 0);
    assert_eq!(stored(&db).len(), 7);
}

#[test]
fn repair_does_not_change_an_intact_log() {
    let (folder, db) = killed();
    let before = files(folder.path());
    let (code, stdout, stderr) = run(&["repair", "--drop-wal"], &db);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("intact"), "{stdout}");
    assert!(files(folder.path()) == before);
}

/// Returns what `serve` says of a database that it refuses.
fn refusal(db: &Path) -> String {
    let output = serve_command(db).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(65), "{stderr}");
    stderr
}

#[test]
fn a_log_that_is_cut_off_or_gone_stops_the_start_with_the_number_of_lost_events() {
    let (folder, db) = killed();
    let bytes = fs::read(log(&db)).unwrap();
    fs::write(log(&db), &bytes[..bytes.len() - 7]).unwrap();
    let before = files(folder.path());
    let stderr = refusal(&db);
    assert!(
        stderr.contains("50 events that were acknowledged are not in"),
        "{stderr}"
    );
    assert!(files(folder.path()) == before, "the database was touched");
    fs::remove_file(log(&db)).unwrap();
    let stderr = refusal(&db);
    assert!(
        stderr.contains("250 events that were acknowledged"),
        "{stderr}"
    );
    assert!(stderr.contains("repair --accept-loss --db"), "{stderr}");

    // Nothing is lost when the log is back.
    fs::write(log(&db), &bytes).unwrap();
    assert_eq!(Echo::serve(&db).terminate(), 0);
    assert_eq!(stored(&db).len(), 10);
}

fn lost(echo: &Echo) -> String {
    metric(echo, "echo_store_lost_events_total").to_string()
}

#[test]
fn a_server_goes_on_without_lost_events_once_that_is_accepted_and_counts_them() {
    let (_folder, db) = killed();
    let bytes = fs::read(log(&db)).unwrap();
    fs::write(log(&db), &bytes[..bytes.len() - 7]).unwrap();
    refusal(&db);
    let (code, stdout, stderr) = run(&["repair", "--accept-loss", "--json"], &db);
    assert_eq!(code, 0, "{stderr}");
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&answer["lost_events"], &answer["events"]),
        (&json!(50), &json!(450))
    );
    let echo = Echo::serve(&db);
    assert_eq!(lost(&echo), "50");
    fill(&echo, 11..=12);
    echo.kill();
    let echo = Echo::serve(&db);
    assert_eq!(lost(&echo), "50");
    assert_eq!(echo.terminate(), 0);
    let stored = stored(&db);
    assert_eq!(stored.len(), 11);
    assert!(stored.values().all(|counts| *counts == (POINTS, POINTS)));
}
