//! Statements about the schema as a whole.

use duckdb::{Connection, params};
use echo_core::units::Nanos;

use crate::duckdb::engine::EngineResult;
use crate::duckdb::migrations::Migration;

/// Number of things that somebody made in the database, and how many of them are the list of migrations. A database
/// of another program may have no table at all.
pub(in crate::duckdb) const MADE: &str = "
    SELECT count(*), count(*) FILTER (name = 'schema_version' AND kind = 'table') FROM (
        SELECT 'table' AS kind, table_name AS name FROM duckdb_tables() WHERE NOT internal
        UNION ALL SELECT 'view', view_name FROM duckdb_views() WHERE NOT internal
        UNION ALL SELECT 'sequence', sequence_name FROM duckdb_sequences()
        UNION ALL SELECT 'type', type_name FROM duckdb_types() WHERE NOT internal
        UNION ALL SELECT 'macro', function_name FROM duckdb_functions()
            WHERE NOT internal AND function_type IN ('macro', 'table_macro'))";

/// Makes a transaction one that writes, and changes nothing.
pub(in crate::duckdb) const SEEM_TO_WRITE: &str = "DELETE FROM judged_rows WHERE FALSE";

/// Puts the newest rows in the place behind them, in the tables that slices are deleted from; within one transaction nobody
/// sees a difference.
///
/// A checkpoint gives the room of deleted rows free only in tables that rows were added to or deleted from since the last
/// one, even if that one could not give it free. Rows that the transaction itself has added are numbered from 2^55 on.
pub(in crate::duckdb) const MOVE_NEWEST: &str = "
    INSERT INTO event_rows
        SELECT * FROM event_rows WHERE event_id = (SELECT max(event_id) FROM event_rows);
    DELETE FROM event_rows
        WHERE event_id = (SELECT max(event_id) FROM event_rows) AND rowid < 36028797018960000;
    INSERT INTO sample_rows
        SELECT * FROM sample_rows WHERE event_id = (SELECT max(event_id) FROM sample_rows);
    DELETE FROM sample_rows
        WHERE event_id = (SELECT max(event_id) FROM sample_rows) AND rowid < 36028797018960000";

/// Writes what the log holds to the database.
pub(in crate::duckdb) const CHECKPOINT: &str = "CHECKPOINT";

/// Versions and checksums of the migrations that were applied, in order.
pub(in crate::duckdb) fn applied(connection: &Connection) -> EngineResult<Vec<(i64, String)>> {
    let mut statement = connection
        .prepare("SELECT version::BIGINT, checksum FROM schema_version ORDER BY version")?;
    statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Notes that a migration was applied.
pub(in crate::duckdb) fn record(
    connection: &Connection,
    migration: &Migration,
    now: Nanos,
) -> EngineResult<()> {
    connection.execute(
        "INSERT INTO schema_version (version, name, checksum, applied_at) VALUES (?, ?, ?, ?)",
        params![
            migration.version,
            migration.name,
            migration.checksum(),
            now.value()
        ],
    )?;
    Ok(())
}
