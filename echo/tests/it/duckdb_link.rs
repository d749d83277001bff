//! Version and extensions of the linked DuckDB.

#![expect(
    clippy::disallowed_methods,
    reason = "tests the library, not the store"
)]

use duckdb::Connection;

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
