//! One process owns a database, and a database from the future is left alone.

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
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), said)
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
fn a_second_process_on_the_same_duckdb_file_exits_75_and_names_the_holder() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let holder = Echo::serve(&db);
    let (code, said) = refusal(&db);
    assert_eq!(code, 75, "{said}");
    assert!(
        said.contains("pid") && said.contains("fleet.duckdb"),
        "{said}"
    );
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert_eq!(holder.terminate(), 0);
}

#[test]
fn a_duckdb_file_with_a_newer_schema_exits_65_and_is_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    assert_eq!(Echo::serve(&db).terminate(), 0);
    make_newer(&db);
    let before = files(folder.path());
    let (code, said) = refusal(&db);
    assert_eq!(code, 65, "{said}");
    assert!(said.contains("version 9999"), "{said}");
    assert_eq!(
        files(folder.path()),
        before,
        "a refused database was written to"
    );
}

#[expect(clippy::disallowed_methods, reason = "plays the part of a later Echo")]
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
fn a_file_that_is_no_database_exits_65_and_is_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    std::fs::write(&db, b"these are my holiday pictures").unwrap();
    let (code, said) = refusal(&db);
    assert_eq!(code, 65, "{said}");
    assert_eq!(
        std::fs::read(&db).unwrap(),
        b"these are my holiday pictures"
    );
}

#[test]
fn a_taken_port_exits_69_and_names_the_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = serve_command(&folder.path().join("fleet.duckdb"));
    let address = taken.local_addr().unwrap().to_string();
    let output = command.args(["--otlp-listen", &address]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("--otlp-listen"), "{said}");
}

#[test]
fn a_request_that_never_ends_does_not_keep_echo_from_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let mut stalled = TcpStream::connect(&echo.http).unwrap();
    let head = "POST /api/v1/tools/fleet.cluster.get_cost HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{";
    stalled.write_all(head.as_bytes()).unwrap();
    assert_eq!(echo.terminate(), 0);
}
