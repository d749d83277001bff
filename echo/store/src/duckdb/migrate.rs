//! Migrates the schema of a database to the one of this build, and refuses unknown schemas.

use std::path::Path;

use duckdb::Connection;
use echo_core::clock::Clock;

use crate::StoreError;
use crate::duckdb::engine::{EngineResult, engine, unreadable};
use crate::duckdb::migrations::Migration;
use crate::duckdb::rows::schema;

/// Returns the schema version of the database, 0 if it is empty; an error if it is not a version in
/// `known`.
pub(super) fn version(
    connection: &Connection,
    path: &Path,
    known: &[Migration],
) -> Result<i64, StoreError> {
    let failed = |error: duckdb::Error| unreadable(path, error.to_string());
    let count = |sql: &str| -> Result<i64, StoreError> {
        let counted = connection.query_row(sql, [], |row| row.get(0));
        counted.map_err(failed)
    };
    let applied = if count(schema::LEDGERS)? > 0 {
        schema::applied(connection).map_err(failed)?
    } else if count(schema::MADE)? == 0 {
        return Ok(0);
    } else {
        Vec::new()
    };
    let Some((found, _)) = applied.last() else {
        let reason =
            "it is a database of another program: it has contents, but no table of migrations";
        return Err(unreadable(path, reason.to_owned()));
    };
    // Check for differing migrations first: a database with another history is not a newer one.
    for (migration, (version, checksum)) in known.iter().zip(&applied) {
        if migration.version != *version || migration.checksum() != *checksum {
            return Err(StoreError::Changed {
                path: path.display().to_string(),
                version: *version,
                found: checksum.clone(),
            });
        }
    }
    let last_known = known.last().map_or(0, |migration| migration.version);
    if *found > last_known {
        return Err(StoreError::Newer {
            path: path.display().to_string(),
            found: *found,
            known: last_known,
        });
    }
    Ok(*found)
}

/// Applies the migrations that a database of this version lacks, one transaction each.
pub(super) fn apply(
    connection: &mut Connection,
    version: i64,
    migrations: &[Migration],
    clock: &dyn Clock,
) -> Result<(), StoreError> {
    let missing = migrations
        .iter()
        .filter(|migration| migration.version > version);
    for migration in missing {
        apply_one(connection, migration, clock).map_err(engine("migrating the schema"))?;
        tracing::debug!(
            schema.version = migration.version,
            "applied migration {}",
            migration.name,
        );
    }
    // Schema changes never share a WAL with rows: the engine has had bugs in replaying such a mix.
    connection
        .execute_batch(schema::CHECKPOINT)
        .map_err(engine("checkpointing the schema"))
}

fn apply_one(
    connection: &mut Connection,
    migration: &Migration,
    clock: &dyn Clock,
) -> EngineResult<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(migration.sql)?;
    schema::record(&transaction, migration, clock.now())?;
    transaction.commit()
}
