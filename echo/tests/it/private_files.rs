//! Modes of the files that Echo creates: readable only by the account that Echo runs as, because
//! they describe the fleet.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::load::{Sent, request, send, sender};
use crate::testbed::{ECHO, Echo, serve_command, wait_for};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Returns all files and folders below a folder, with their modes.
fn below(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.push((path.clone(), mode(&path)));
        if path.is_dir() {
            found.extend(below(&path));
        }
    }
    found
}

/// Checks that files are 0600 and folders 0700.
#[track_caller]
fn assert_are_private(folder: &Path) {
    for (path, mode) in below(folder) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{mode:o} {}", path.display());
    }
}

fn run(arguments: &[&str], db: &Path) {
    let mut command = Command::new(ECHO);
    let output = command.args(arguments).arg("--db").arg(db).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn databases_backups_and_exports_are_private_to_their_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let db = path("fleet.duckdb");
    let echo = Echo::serve_with(&db, &["--ballast", "1MiB", "--min-free", "1"]);
    let sent = send(&sender(), &echo.otlp_http, "agent-1", 1, &request(1, 50));
    assert_eq!(sent, Sent::Acknowledged);
    // The log exists only for a short time: a checkpoint runs every five seconds.
    assert_eq!(mode(&path("fleet.duckdb.wal")), 0o600);
    wait_for("the ballast", || path("fleet.duckdb.ballast").exists());
    assert_eq!(echo.terminate(), 0);
    assert_are_private(folder.path());
    run(&["backup", path("monday.duckdb").to_str().unwrap()], &db);
    run(&["export", path("export").to_str().unwrap()], &db);
    let n_exported = below(&path("export")).len();
    assert!(n_exported > 2, "{n_exported}");
    assert_are_private(folder.path());
}

#[test]
fn a_world_readable_database_becomes_private_and_a_group_readable_one_is_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    assert_eq!(Echo::serve(&db).terminate(), 0);
    for (before, after) in [(0o644, 0o600), (0o666, 0o600), (0o640, 0o640)] {
        fs::set_permissions(&db, Permissions::from_mode(before)).unwrap();
        let (echo, log) = Echo::spawn(serve_command(&db));
        assert_eq!(echo.terminate(), 0);
        assert_eq!(mode(&db), after, "{before:o}");
        let log = fs::read_to_string(log.path()).unwrap();
        assert_eq!(log.contains("0600"), before != after, "{log}");
    }
    let target = folder.path().join("copy.duckdb");
    fs::write(
        folder.path().join("copy.duckdb.partial"),
        "of a backup that was killed",
    )
    .unwrap();
    run(&["backup", target.to_str().unwrap()], &db);
    assert_eq!(mode(&target), 0o600);
}
