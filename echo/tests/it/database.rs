//! Startup errors: a locked or newer database, an invalid file, a port in use.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::testbed::{Echo, serve_command};

fn refusal(db: &Path) -> (i32, String) {
    refused(serve_command(db))
}

fn refused(mut command: Command) -> (i32, String) {
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), stderr)
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none_or(|extension| extension != "lock"))
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_second_process_on_the_same_database_exits_75_and_names_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let holder = Echo::serve(&db);
    let (code, stderr) = refusal(&db);
    assert_eq!(code, 75, "{stderr}");
    assert!(
        stderr.contains("pid") && stderr.contains("fleet.duckdb"),
        "{stderr}"
    );
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    assert_eq!(holder.terminate(), 0);
}

#[test]
fn a_new_database_is_created_without_a_line_per_migration() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = serve_command(&folder.path().join("fleet.duckdb"));
    command.args(["--log", "info"]);
    let (echo, log) = Echo::spawn(command);
    assert_eq!(echo.terminate(), 0);
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert!(log.contains("INFO"), "{log}");
    assert!(!log.contains("migration"), "{log}");
}

#[test]
fn a_database_with_a_newer_schema_exits_65_and_is_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    assert_eq!(Echo::serve(&db).terminate(), 0);
    make_newer(&db);
    let before = files(folder.path());
    let (code, stderr) = refusal(&db);
    assert_eq!(code, 65, "{stderr}");
    assert!(stderr.contains("version 9999"), "{stderr}");
    assert_eq!(
        files(folder.path()),
        before,
        "a refused database was written to"
    );
}

#[expect(clippy::disallowed_methods, reason = "acts as a newer version of Echo")]
fn make_newer(db: &Path) {
    let later = duckdb::Connection::open(db).unwrap();
    later
        .execute_batch(
            "INSERT INTO schema_version (version, name, checksum, applied_at) \
             SELECT 9999, 'from_the_future', 'none', max(applied_at) FROM schema_version",
        )
        .unwrap();
}

#[test]
fn an_invalid_database_file_exits_65_and_is_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    std::fs::write(&db, b"these are my holiday pictures").unwrap();
    let (code, stderr) = refusal(&db);
    assert_eq!(code, 65, "{stderr}");
    assert_eq!(
        std::fs::read(&db).unwrap(),
        b"these are my holiday pictures"
    );
}

#[test]
fn a_port_in_use_exits_69_names_the_flag_and_creates_no_database() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--otlp-listen", "--otlp-http-listen", "--http-listen"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = serve_command(&folder.path().join("fleet.duckdb"));
        command.args([flag, &address]);
        let (code, stderr) = refused(command);
        assert_eq!(code, 69, "{stderr}");
        assert!(stderr.contains(flag), "{stderr}");
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "{flag}: files were created");
    }
}

#[test]
fn two_listeners_on_one_port_exit_69_and_create_no_database() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let folder = tempfile::tempdir().unwrap();
    let mut command = serve_command(&folder.path().join("fleet.duckdb"));
    command.args(["--otlp-listen", &format!("127.0.0.1:{port}")]);
    command.args(["--http-listen", &format!("127.0.0.1:{port}")]);
    let (code, stderr) = refused(command);
    assert_eq!(code, 69, "{stderr}");
    assert!(stderr.contains("--http-listen"), "{stderr}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_second_process_with_the_same_ports_reports_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let holder = Echo::serve(&db);
    let mut second = serve_command(&db);
    second.args(["--otlp-listen", &holder.otlp, "--http-listen", &holder.http]);
    let (code, stderr) = refused(second);
    assert_eq!(code, 75, "{stderr}");
    assert!(stderr.contains("pid"), "{stderr}");
    assert_eq!(holder.terminate(), 0);
}

#[test]
fn an_unfinished_request_does_not_prevent_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let mut stalled = TcpStream::connect(&echo.http).unwrap();
    let head = "POST /api/v1/tools/fleet.cluster.get_cost HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{";
    stalled.write_all(head.as_bytes()).unwrap();
    assert_eq!(echo.terminate(), 0);
}
