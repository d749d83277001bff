//! Statements about the schema as a whole.

use duckdb::{Connection, params};
use echo_core::units::Nanos;

use crate::duckdb::engine::EngineResult;
use crate::duckdb::migrations::Migration;

/// Number of tables of migrations.
pub(in crate::duckdb) const LEDGERS: &str =
    "SELECT count(*) FROM duckdb_tables() WHERE NOT internal AND table_name = 'schema_version'";

/// Number of user-created objects in the database. A database of another program may have no table at
/// all. Listing the functions takes 15 ms.
pub(in crate::duckdb) const MADE: &str = "
    SELECT count(*) FROM (
        SELECT table_name FROM duckdb_tables() WHERE NOT internal
        UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal
        UNION ALL SELECT sequence_name FROM duckdb_sequences()
        UNION ALL SELECT type_name FROM duckdb_types() WHERE NOT internal
        UNION ALL SELECT function_name FROM duckdb_functions()
            WHERE NOT internal AND function_type IN ('macro', 'table_macro'))";

/// Makes the engine treat a transaction as a writing one, without changes.
pub(in crate::duckdb) const SEEM_TO_WRITE: &str = "DELETE FROM judged_rows WHERE FALSE";

/// Reinserts the newest rows of the tables that slices are deleted from, without a visible change
/// for other transactions.
///
/// A checkpoint frees the space of deleted rows only in tables that were changed since the last
/// one, even if that one could not free it. Rows added by the transaction itself are numbered from
/// 2^55 on.
pub(in crate::duckdb) const MOVE_NEWEST: &str = "
    INSERT INTO event_rows
        SELECT * FROM event_rows WHERE event_id = (SELECT max(event_id) FROM event_rows);
    DELETE FROM event_rows
        WHERE event_id = (SELECT max(event_id) FROM event_rows) AND rowid < 36028797018960000;
    INSERT INTO sample_rows
        SELECT * FROM sample_rows WHERE event_id = (SELECT max(event_id) FROM sample_rows);
    DELETE FROM sample_rows
        WHERE event_id = (SELECT max(event_id) FROM sample_rows) AND rowid < 36028797018960000";

/// Checkpoints the log.
pub(in crate::duckdb) const CHECKPOINT: &str = "CHECKPOINT";

/// Versions and checksums of the applied migrations, in order.
pub(in crate::duckdb) fn applied(connection: &Connection) -> EngineResult<Vec<(i64, String)>> {
    let mut statement = connection
        .prepare("SELECT version::BIGINT, checksum FROM schema_version ORDER BY version")?;
    statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Records an applied migration.
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
