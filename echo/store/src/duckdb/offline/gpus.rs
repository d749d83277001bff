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
    let locked = LockedDatabase::lock(db, clock)?;
    let connection = locked.read()?;
    gpus::read(&connection).map_err(engine("reading the GPUs"))
}
