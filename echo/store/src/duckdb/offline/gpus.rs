//! Which GPUs have reported to a stopped Echo.

use std::path::Path;

use echo_core::clock::Clock;
use echo_core::ids::{ClusterId, NodeId};

use crate::StoreError;
use crate::duckdb::engine;
use crate::duckdb::offline::Held;
use crate::duckdb::rows::gpus;

/// The GPUs of one model on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpus {
    /// Cluster of the node.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Model as the sender wrote it, when it did.
    pub model: Option<String>,
    /// How many ranks have one.
    pub n_ranks: u64,
}

/// The GPUs, by cluster, node and model.
pub fn gpus(db: &Path, clock: &dyn Clock) -> Result<Vec<Gpus>, StoreError> {
    let held = Held::take(db, clock)?;
    let connection = held.read()?;
    gpus::read(&connection).map_err(engine("reading which GPUs there are"))
}
