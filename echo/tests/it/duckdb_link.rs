//! Version and extensions of the linked DuckDB.

#![expect(
    clippy::disallowed_methods,
    reason = "tests the library, not the store"
)]

use std::process::Command;

use duckdb::Connection;

use crate::testbed::ECHO;

#[test]
fn duckdb_has_the_pinned_version() {
    let connection = Connection::open_in_memory().unwrap();
    let version: String = connection
        .query_row("SELECT version()", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, "v1.5.5");
}

#[test]
fn duckdb_extensions_are_linked_in_and_never_fetched() {
    let connection = Connection::open_in_memory().unwrap();
    let mut statement = connection
        .prepare(
            "SELECT extension_name FROM duckdb_extensions()
             WHERE install_mode = 'STATICALLY_LINKED' ORDER BY extension_name",
        )
        .unwrap();
    let linked: Vec<String> = statement
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        linked,
        ["autocomplete", "core_functions", "icu", "json", "parquet"]
    );
}

#[test]
fn the_program_looks_for_duckdb_relative_to_itself_and_names_no_folder_of_the_build() {
    let output = Command::new("readelf").args(["-d", ECHO]).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    let paths = output.lines().filter(|line| line.contains("RUNPATH"));
    let paths: Vec<&str> = paths
        .filter_map(|line| line.split_once('['))
        .map(|(_, path)| path)
        .collect();
    assert_eq!(paths, ["$ORIGIN/../lib/fleet-echo]"], "{output}");
    assert!(!output.contains("RPATH)"), "{output}");
}
