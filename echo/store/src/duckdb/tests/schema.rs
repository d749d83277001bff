use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{clock, config, connect, open, schema_version};
use crate::StoreError;
use crate::duckdb::migrate;
use crate::duckdb::migrations::{MIGRATIONS, Migration};
use crate::duckdb::{DuckDbConfig, DuckDbStore};

/// Migration that this build does not have.
const LATER: Migration = Migration {
    version: 2,
    name: "later",
    sql: "CREATE TABLE later (n BIGINT)",
};

/// Runs `sql` on a database of this build and returns a folder with the files that a process killed
/// then would leave: the statement is in the log only.
fn killed_after(sql: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = config(&folder).path;
    drop(open(&config(&folder)));
    let connection = connect(&path);
    connection.execute_batch(sql).unwrap();
    let copy = tempfile::tempdir().unwrap();
    for name in ["echo.db", "echo.db.wal"] {
        fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    copy
}

fn refused(folder: &TempDir) -> StoreError {
    DuckDbStore::open(&config(folder), clock()).unwrap_err()
}

/// Every file beside the database except the lock, with its bytes.
fn bytes(folder: &TempDir) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none_or(|ending| ending != "lock"))
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn migrations_are_numbered_without_gap_and_all_registered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let registered: Vec<_> = (1..)
        .zip(MIGRATIONS)
        .map(|(number, migration)| {
            assert_eq!(migration.version, number);
            format!("{number:04}_{}.sql", migration.name)
        })
        .collect();
    assert_eq!(files, registered);
}

#[test]
fn a_later_migration_is_applied_once_to_a_database_of_an_earlier_build() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&config(&folder)));
    let path = config(&folder).path;
    let mut steps = MIGRATIONS.to_vec();
    steps.push(LATER);
    for _ in 0..2 {
        let mut connection = connect(&path);
        let version = migrate::version(&connection, &path, &steps).unwrap();
        migrate::apply(&mut connection, version, &steps, &*clock()).unwrap();
        assert_eq!(migrate::version(&connection, &path, &steps).unwrap(), 2);
        connection
            .execute_batch("INSERT INTO later VALUES (1)")
            .unwrap();
    }
    let error = refused(&folder);
    assert!(
        matches!(
            error,
            StoreError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn every_public_column_is_commented() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&config(&folder)));
    let connection = connect(&config(&folder).path);
    let silent: i64 = connection
        .query_row(
            "SELECT count(*) FROM duckdb_columns()
             WHERE NOT internal AND comment IS NULL AND table_name <> 'verdict_history'
                AND table_name IN (SELECT view_name FROM duckdb_views() WHERE NOT internal)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(silent, 0);
}

#[test]
fn a_newer_database_is_refused_and_unchanged() {
    let folder = killed_after("INSERT INTO schema_version VALUES (99, 'later', 'ffff', 0)");
    let before = bytes(&folder);
    assert_eq!(before.len(), 2, "a database and its log");
    for _ in 0..2 {
        let error = refused(&folder);
        let StoreError::Newer {
            found: 99, known, ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(known, 1);
        assert!(bytes(&folder) == before, "the database was touched");
    }
}

#[test]
fn a_changed_migration_is_refused() {
    let folder = killed_after("UPDATE schema_version SET checksum = 'beef' WHERE version = 1");
    let error = refused(&folder);
    let StoreError::Changed {
        version: 1, found, ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(found, "beef");
}

#[test]
fn a_database_of_another_program_is_refused() {
    for sql in [
        "DELETE FROM schema_version",
        "DROP TABLE schema_version",
        "DROP TABLE schema_version; CREATE TABLE schema_version (version VARCHAR)",
    ] {
        let folder = killed_after(sql);
        let before = bytes(&folder);
        let error = refused(&folder);
        assert!(
            matches!(error, StoreError::Unreadable { .. }),
            "{sql}: {error:?}"
        );
        assert!(bytes(&folder) == before, "{sql}: the database was touched");
    }
}

#[test]
fn a_database_without_tables_may_be_of_another_program_too() {
    for sql in [
        "CREATE VIEW mine AS SELECT 1 AS n",
        "CREATE VIEW schema_version AS SELECT 1 AS version",
        "CREATE SEQUENCE mine",
        "CREATE TYPE mine AS ENUM ('a', 'b')",
        "CREATE MACRO mine(n) AS n + 1",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = config(&folder).path;
        connect(&path).execute_batch(sql).unwrap();
        let before = bytes(&folder);
        let error = refused(&folder);
        assert!(
            matches!(&error, StoreError::Unreadable { reason, .. } if reason.contains("another program")),
            "{sql}: {error:?}"
        );
        assert!(bytes(&folder) == before, "{sql}: the database was touched");
    }
}

#[test]
fn an_empty_database_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let empty = connect(&config(&folder).path);
    empty.execute_batch("CHECKPOINT").unwrap();
    drop(empty);
    assert_eq!(schema_version(&config(&folder).path).unwrap(), 0);
    drop(open(&config(&folder)));
    assert_eq!(schema_version(&config(&folder).path).unwrap(), 1);
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_unchanged() {
    for garbage in [Vec::new(), vec![7; 20_000], b"SQLite format 3".to_vec()] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(config(&folder).path, garbage).unwrap();
        let before = bytes(&folder);
        let error = refused(&folder);
        assert!(matches!(error, StoreError::Unreadable { .. }), "{error:?}");
        assert!(bytes(&folder) == before);
    }
}

/// The storage version follows four letters, under a checksum that xors all 8-byte words.
#[test]
fn a_database_of_a_later_engine_is_refused_in_one_line_and_unchanged() {
    const FACTOR: u64 = 0xbf58_476d_1ce4_e5b9;
    let folder = tempfile::tempdir().unwrap();
    let path = config(&folder).path;
    drop(open(&config(&folder)));
    let mut file = fs::read(&path).unwrap();
    let word = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let (checksum, known) = (word(&file, 0), word(&file, 8));
    file[12] = 69;
    let later = word(&file, 8);
    let checksum = checksum ^ known.wrapping_mul(FACTOR) ^ later.wrapping_mul(FACTOR);
    file[..8].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, file).unwrap();
    let before = bytes(&folder);
    let message = refused(&folder).to_string();
    assert!(message.contains("version number 69"), "{message}");
    assert!(!message.contains('\n'), "{message}");
    assert!(bytes(&folder) == before);
}

#[test]
fn a_log_without_its_database_is_refused_and_unchanged() {
    let folder =
        killed_after("INSERT INTO series (id, metric, unit, on_device) VALUES (1, 'x', '', FALSE)");
    fs::remove_file(config(&folder).path).unwrap();
    let before = bytes(&folder);
    let error = refused(&folder);
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error:?}");
    assert!(bytes(&folder) == before);
}

#[test]
fn a_damaged_log_is_refused_and_unchanged() {
    let folder = killed_after(
        "INSERT INTO series (id, metric, unit, on_device) VALUES (1, 'a name long enough to be hit', '', FALSE)",
    );
    let log = folder.path().join("echo.db.wal");
    let mut damaged = fs::read(&log).unwrap();
    let middle = damaged.len() * 2 / 3;
    damaged[middle] ^= 0x10;
    fs::write(&log, damaged).unwrap();
    let before = bytes(&folder);
    let error = refused(&folder);
    assert!(matches!(error, StoreError::DamagedLog { .. }), "{error:?}");
    assert!(bytes(&folder) == before);
}

#[test]
fn a_missing_folder_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent/echo.db");
    let error = DuckDbStore::open(&DuckDbConfig::new(path), clock());
    let message = error.unwrap_err().to_string();
    assert!(message.contains("its folder"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
