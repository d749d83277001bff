//! Database opened by another program without Echo's lock, such as the engine's own shell.

use std::env;
use std::io::{BufRead, BufReader, Read, stdin};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{clock, config, connect};
use crate::StoreError;
use crate::duckdb::DuckDbStore;

/// Environment variable with the database that the other process opens.
const HELD: &str = "FLEET_ECHO_TEST_HELD_DATABASE";

/// The engine's locks belong to a process, so the test runs itself once more as the other program.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the other process learns from its environment that it is the other one"
)]
fn a_database_opened_by_another_program_is_reported_as_locked() {
    if let Some(path) = env::var_os(HELD) {
        return hold(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = config(&folder).path;
    let mut other = Command::new(env::current_exe().unwrap())
        .args(["--nocapture", "--exact"])
        .arg("duckdb::tests::held::a_database_opened_by_another_program_is_reported_as_locked")
        .env(HELD, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("held")));
    let refused = DuckDbStore::open(&config(&folder), clock());
    drop(other.stdin.take());
    let pid = other.id().to_string();
    assert!(other.wait().unwrap().success());
    match refused {
        Err(StoreError::Locked { holder, .. }) => assert!(holder.contains(&pid), "{holder}"),
        refused => panic!("{refused:?}"),
    }
    DuckDbStore::open(&config(&folder), clock()).unwrap();
}

fn hold(path: &Path) {
    let held = connect(path);
    println!("held");
    // Wait until the parent closes the pipe.
    stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(held);
}
