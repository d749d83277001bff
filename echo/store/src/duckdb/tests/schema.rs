use std::fs;
use std::path::Path;

use echo_core::model::conclusion::{Condition, ConditionKind, Finding, IncidentState};
use echo_core::model::event::Source;
use tempfile::TempDir;

use super::{ask, clock, config, connect, open, schema_version};
use crate::contract::sample::{at, incident, query, window};
use crate::duckdb::migrate;
use crate::duckdb::migrations::MIGRATIONS;
use crate::duckdb::{DuckDbConfig, DuckDbStore};
use crate::{EventStore, StoreError};

/// Rows as the second version of the schema had them.
const BEFORE_INPUTS: &str = "
    INSERT INTO names VALUES (1, 'nccl.collective.wait_ms'), (2, 'ms');
    INSERT INTO origins VALUES (1, 'prod', 'node-1', 0, 64, NULL, NULL, NULL, NULL, NULL);
    INSERT INTO event_rows (event_id, timestamp_ns, received_ns, origin, metric, unit, count, sum, comm, attrs)
        VALUES (1, 1763683200010000000, 0, 1, 1, 2, 1, 0.5, 7, '{}');
    INSERT INTO verdict_rows
        SELECT incident, 0, incident, 'prod', 'llama', 'llama/36210ed1bd447fe0', finding, detail, rank, node, gpu,
            class, signal, lag, z, state, 1763683200000000000 + 1000000 * (incident - 1), 1763683200010000000,
            1763683200010000000, 100.5, 140, NULL, 1, 0.31, 131, 'history', 100, 0.9, 'rank 17 is 5.25 ms late'
        FROM (VALUES
            (1, 'culprit', NULL, 17, 'node-2', 'GPU-17', 'host', 'host_gap', 5.25, 31, 'cleared'),
            (2, 'inconclusive', 'coverage is 40 %', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'open')
        ) AS verdicts (incident, finding, detail, rank, node, gpu, class, signal, lag, z, state)";

/// Runs `sql` on a database of this build and returns a folder with what is left of it when the process is killed
/// then: the statement is in the log only.
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

/// Statements that make each table and view, and the names and types of their columns.
fn schema(path: &Path) -> Vec<String> {
    let connection = connect(path);
    let mut statement = connection
        .prepare(
            "SELECT sql FROM duckdb_tables() UNION ALL SELECT sql FROM duckdb_views() WHERE NOT internal
             UNION ALL
             SELECT concat_ws(' ', table_name, column_name, data_type, comment) FROM duckdb_columns() WHERE NOT internal
             ORDER BY 1",
        )
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
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
fn a_database_that_was_migrated_equals_a_fresh_one() {
    let fresh = tempfile::tempdir().unwrap();
    drop(open(&config(&fresh)));
    let migrated = tempfile::tempdir().unwrap();
    let first = config(&migrated).path;
    let migrate = |known| {
        let mut connection = connect(&first);
        migrate::apply(&mut connection, &first, known, &*clock()).unwrap();
    };
    migrate(&MIGRATIONS[..1]);
    assert_eq!(schema_version(&first).unwrap(), 1);
    drop(open(&config(&migrated)));
    assert_eq!(schema(&first), schema(&config(&fresh).path));
    assert!(schema(&first).len() > 100);
}

#[test]
fn the_backup_before_an_upgrade_can_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(&folder).path;
    let mut connection = connect(&path);
    migrate::apply(&mut connection, &path, &MIGRATIONS[..3], &*clock()).unwrap();
    drop(connection);
    let target = folder.path().join("before.duckdb");
    let backup = crate::duckdb::offline::backup::backup(&path, &target, &*clock()).unwrap();
    assert_eq!((backup.schema_version, backup.contents.events), (3, 0));
    assert_eq!(schema_version(&target).unwrap(), 3);
}

#[tokio::test]
async fn rows_from_before_a_migration_read_as_its_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(&folder).path;
    {
        let mut connection = connect(&path);
        migrate::apply(&mut connection, &path, &MIGRATIONS[..2], &*clock()).unwrap();
        connection.execute_batch(BEFORE_INPUTS).unwrap();
    }
    let store = open(&config(&folder));
    let found = store.incidents(None, window(0, 100)).await.unwrap();
    let mut culprit = incident(1, "prod", 0, 10);
    culprit.raised_at = at(10);
    culprit.state = IncidentState::Cleared;
    let mut condition = incident(2, "prod", 1, 10);
    condition.raised_at = at(10);
    condition.finding = Finding::Condition(Condition {
        detail: "coverage is 40 %".to_owned(),
        ..Condition::of(ConditionKind::Inconclusive)
    });
    assert_eq!(found, [culprit, condition]);
    let event = &store.events(query(0, 100)).await.unwrap().events[0].event;
    assert_eq!(event.block.as_ref().unwrap().source, Source::Host);
    let shown: Vec<String> = ask(
        &store,
        "SELECT concat_ws(' ', rank, severity, stability, provisional, source, victims::VARCHAR, ranks::VARCHAR)
         FROM verdicts ORDER BY incident_id",
    )
    .await;
    assert_eq!(shown, ["17 info 1.0 false host []", "info 1.0 false []"]);
    let sources: Vec<String> = ask(&store, "SELECT source FROM events").await;
    assert_eq!(sources, ["host"]);
    let judged: Vec<i64> = ask(&store, "SELECT event_id::BIGINT FROM judged").await;
    assert_eq!(judged, [1], "an earlier version judged what it stored");
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
fn a_newer_database_is_refused_and_left_byte_for_byte() {
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
        assert_eq!(known, 8);
        assert!(bytes(&folder) == before, "the database was touched");
    }
}

#[test]
fn a_changed_migration_is_refused() {
    let folder = killed_after("UPDATE schema_version SET checksum = 'beef' WHERE version = 2");
    let error = refused(&folder);
    let StoreError::Changed {
        version: 2, found, ..
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
fn a_database_without_anything_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let empty = connect(&config(&folder).path);
    empty.execute_batch("CHECKPOINT").unwrap();
    drop(empty);
    assert_eq!(schema_version(&config(&folder).path).unwrap(), 0);
    drop(open(&config(&folder)));
    assert_eq!(schema_version(&config(&folder).path).unwrap(), 8);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left() {
    for garbage in [Vec::new(), vec![7; 20_000], b"SQLite format 3".to_vec()] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(config(&folder).path, garbage).unwrap();
        let before = bytes(&folder);
        let error = refused(&folder);
        assert!(matches!(error, StoreError::Unreadable { .. }), "{error:?}");
        assert!(bytes(&folder) == before);
    }
}

/// The version of the storage stands behind four letters, under a checksum that xors all words of eight bytes.
#[test]
fn a_database_of_a_later_engine_is_refused_in_one_line_and_left() {
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
fn a_log_without_its_database_is_refused_and_left() {
    let folder = killed_after("INSERT INTO names VALUES (1, 'x')");
    fs::remove_file(config(&folder).path).unwrap();
    let before = bytes(&folder);
    let error = refused(&folder);
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error:?}");
    assert!(bytes(&folder) == before);
}

#[test]
fn a_damaged_log_is_refused_and_left() {
    let folder = killed_after("INSERT INTO names VALUES (1, 'a name long enough to be hit')");
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
fn a_folder_that_does_not_exist_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent/echo.db");
    let error = DuckDbStore::open(&DuckDbConfig::new(path), clock());
    let message = error.unwrap_err().to_string();
    assert!(message.contains("its folder"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
