//! Statements about the schema as a whole.

use duckdb::{Connection, params};

use crate::store::duckdb::EngineResult;
use crate::store::duckdb::migrate::Migration;
use crate::units::Nanos;

/// Number of tables, and how many of them are the list of migrations.
pub(in crate::store::duckdb) const TABLES: &str =
    "SELECT count(*), count(*) FILTER (table_name = 'schema_version') FROM duckdb_tables()";

/// Writes what the log holds to the database.
pub(in crate::store::duckdb) const CHECKPOINT: &str = "CHECKPOINT";

/// Versions and checksums of the migrations that were applied, in order.
pub(in crate::store::duckdb) fn applied(
    connection: &Connection,
) -> EngineResult<Vec<(i64, String)>> {
    let mut statement = connection
        .prepare("SELECT version::BIGINT, checksum FROM schema_version ORDER BY version")?;
    statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Notes that a migration was applied.
pub(in crate::store::duckdb) fn record(
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
