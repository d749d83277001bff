//! Export of rows to Parquet files, in a folder per cluster and day.

use std::fs;
use std::path::Path;

use echo_core::clock::Clock;

use crate::StoreError;
use crate::duckdb::engine::engine;
use crate::duckdb::inventory::{Partition, Scope};
use crate::duckdb::offline::{LockedDatabase, cannot_write};
use crate::duckdb::rows::parquet;

/// Exports the rows in the scope to `folder`, which must be empty or absent. Returns the partitions
/// written, in order.
pub fn export(
    db: &Path,
    folder: &Path,
    scope: &Scope,
    clock: &dyn Clock,
) -> Result<Vec<Partition>, StoreError> {
    let locked = LockedDatabase::lock(db, clock)?;
    fs::create_dir_all(folder).map_err(cannot_write(folder))?;
    let mut entries = fs::read_dir(folder).map_err(cannot_write(folder))?;
    if entries.next().is_some() {
        return Err(StoreError::Unwritable {
            path: folder.display().to_string(),
            reason: "it is not empty".to_owned(),
        });
    }
    let connection = locked.read()?;
    let mut written = Vec::new();
    for dataset in parquet::DATASETS {
        let rows = parquet::partitions(&connection, dataset, scope)
            .map_err(engine("counting the rows to export"))?;
        if !rows.is_empty() {
            parquet::write(&connection, dataset, scope, &folder.join(dataset.name))
                .map_err(engine("writing Parquet"))?;
        }
        written.extend(rows);
    }
    Ok(written)
}
