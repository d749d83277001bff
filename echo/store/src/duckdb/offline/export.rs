//! The rows of a database as Parquet files, in a folder per cluster and day.

use std::fs;
use std::path::Path;

use echo_core::clock::Clock;
use echo_core::ids::ClusterId;
use echo_core::units::Window;

use crate::StoreError;
use crate::duckdb::engine;
use crate::duckdb::offline::{Held, cannot_write};
use crate::duckdb::rows::parquet;

/// Which rows are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Cluster; all when absent.
    pub cluster: Option<ClusterId>,
    /// Event time.
    pub window: Window,
}

/// Rows of one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// What they are: `events`, `op_waits`, `verdict_history` or `lost_time`, as the view that they come from.
    pub dataset: &'static str,
    /// Cluster.
    pub cluster: String,
    /// Day of event time, UTC, as `2026-11-21`.
    pub day: String,
    /// Number of rows.
    pub rows: u64,
}

/// Writes the rows in the scope below `folder`, which must be empty or absent. Returns what was written, in order.
pub fn export(
    db: &Path,
    folder: &Path,
    scope: &Scope,
    clock: &dyn Clock,
) -> Result<Vec<Partition>, StoreError> {
    let held = Held::take(db, clock)?;
    fs::create_dir_all(folder).map_err(cannot_write(folder))?;
    let mut entries = fs::read_dir(folder).map_err(cannot_write(folder))?;
    if entries.next().is_some() {
        return Err(StoreError::Unwritable {
            path: folder.display().to_string(),
            reason: "it is not empty".to_owned(),
        });
    }
    let connection = held.read()?;
    let mut written = Vec::new();
    for dataset in parquet::DATASETS {
        let rows = parquet::partitions(&connection, dataset, scope)
            .map_err(engine("counting what is exported"))?;
        if !rows.is_empty() {
            parquet::write(&connection, dataset, scope, &folder.join(dataset.name))
                .map_err(engine("writing Parquet"))?;
        }
        written.extend(rows);
    }
    Ok(written)
}
