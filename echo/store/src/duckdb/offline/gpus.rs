//! GPUs that have reported to a stopped instance.

use std::path::Path;

use echo_core::clock::Clock;

use crate::StoreError;
use crate::duckdb::engine::engine;
use crate::duckdb::inventory::Gpus;
use crate::duckdb::offline::LockedDatabase;
use crate::duckdb::rows::gpus;

/// Returns the GPUs, ordered by cluster, node and model.
pub fn gpus(db: &Path, clock: &dyn Clock) -> Result<Vec<Gpus>, StoreError> {
    let held = LockedDatabase::lock(db, clock)?;
    let connection = held.read()?;
    gpus::read(&connection).map_err(engine("reading the GPUs"))
}
