//! Configuration of a database.

use std::path::PathBuf;
use std::time::Duration;

use crate::duckdb::lake_source::LakeSource;
#[cfg(any(test, feature = "testing"))]
use crate::duckdb::testing::sql_program;
use crate::limits::{Amount, Limits};

/// Configuration of a database.
#[derive(Debug, Clone, PartialEq)]
pub struct DuckDbConfig {
    /// Database file; it is created if absent, its folder is not.
    pub path: PathBuf,
    /// Memory limit of the engine.
    pub memory_limit: Amount,
    /// Query threads; by default one less than there are cores, at least two.
    pub threads: Option<usize>,
    /// Maximum number of concurrent queries.
    pub readers: u32,
    /// Maximum number of queued events; more are refused as [`crate::StoreError::Busy`].
    pub queue_events: u32,
    /// Minimum time between the starts of two commits while requests arrive; requests that arrive
    /// meanwhile share the next commit.
    pub commit_every: Duration,
    /// Idle time after which a commit starts early.
    pub commit_after_quiet: Duration,
    /// Longest time between two checkpoints, and the interval of retention checks.
    pub checkpoint_every: Duration,
    /// Retention limits.
    pub limits: Limits,
    /// Whether retention keeps events until [`crate::duckdb::slices::SliceReader::confirm`] has
    /// reported that they are stored elsewhere, unless the free space is below its floor.
    pub keep_until_copied: bool,
    /// Lake whose rows are read in the place of own rows. Then the database has to be a new one,
    /// nothing may be appended, and nothing is deleted.
    pub lake: Option<LakeSource>,
    /// Program that runs SQL statements, each in a process of its own: it calls [`crate::duckdb::sql::worker::run`]
    /// if that is requested. By default this program.
    pub sql_program: PathBuf,
}

impl DuckDbConfig {
    /// Configuration of the database at `path` with the limits that Echo was measured with.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            memory_limit: Amount::Bytes(2_000_000_000),
            threads: None,
            readers: 4,
            queue_events: 300_000,
            commit_every: Duration::ZERO,
            commit_after_quiet: Duration::from_millis(20),
            checkpoint_every: Duration::from_secs(5),
            limits: Limits::default(),
            keep_until_copied: false,
            lake: None,
            sql_program: sql_program(),
        }
    }
}

/// This program, also if its file has been replaced since.
#[cfg(not(any(test, feature = "testing")))]
fn sql_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}
