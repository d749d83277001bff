//! A lake that a store reads, and how it is attached.

use std::fmt;
use std::time::Duration;

use duckdb::Connection;

use crate::StoreError;
use crate::duckdb::engine::engine;
use crate::duckdb::redaction::Hidden;

/// Name under which the lake has to be attached.
pub(super) const LAKE: &str = "lake";

/// A lake that is read in the place of own rows.
#[derive(Clone, PartialEq, Eq)]
pub struct LakeSource {
    /// Statements that attach the lake as `lake`, for reading. They may set up credentials: they
    /// run before settings are locked and before SQL of users exists.
    pub attach: String,
    /// Texts that must not appear in messages.
    pub secrets: Vec<String>,
    /// Interval at which a newer snapshot is looked for.
    pub refresh_every: Duration,
}

impl fmt::Debug for LakeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LakeSource").finish_non_exhaustive()
    }
}

/// Attaches the lake.
pub(super) fn attach(connection: &Connection, lake: &LakeSource) -> Result<(), StoreError> {
    let attached = connection.execute_batch(&lake.attach);
    let hidden = Hidden::new(&lake.secrets);
    attached.map_err(|error| hidden.in_error(engine("attaching the lake")(error)))
}
