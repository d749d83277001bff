//! Databases for tests of this and other packages.

#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "only tests of this package and others see it"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use echo_core::clock::{Clock, ManualClock};
use echo_core::units::Nanos;

use crate::duckdb::connection_pool::Reader;
use crate::duckdb::rows::partition::{self, DeleteRange};
use crate::duckdb::{DuckDbConfig, DuckDbStore};
use crate::hours::UnsettledHour;
use crate::limits::{Amount, Limits};

impl DuckDbStore {
    /// Empty database in a folder of its own, which is removed with the store. Retention is off.
    /// The clock stands still.
    pub fn scratch() -> Self {
        Self::scratch_with(Arc::new(ManualClock::at(Nanos::EARLIEST)))
    }

    /// The same with another clock.
    pub fn scratch_with(clock: Arc<dyn Clock>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo.db");
        fs::copy(empty_database(), &path).unwrap();
        let config = scratch_config(&path);
        Self {
            _scratch: Some(folder),
            ..Self::open(&config, clock).unwrap()
        }
    }

    /// Hours that other instances have due, as a lake shows them.
    pub fn set_due_elsewhere(&self, hours: Vec<UnsettledHour>) {
        self.hours.set_elsewhere(hours);
    }

    /// Deletes events received before `until`, as retention does.
    pub async fn drop_before(&self, until: Nanos) {
        let read = move |reader: &Reader| partition::events_before(&reader.connection, until, 0);
        let events = self.readers.run("testing", read).await.unwrap();
        let range = DeleteRange {
            from: Nanos::EARLIEST,
            until,
            events: events.unwrap(),
            reason: "age",
        };
        let tasks = self.writer.maintenance_queue();
        let delete = move || tasks.delete(range, until);
        tokio::task::spawn_blocking(delete).await.unwrap().unwrap();
    }
}

/// Database without rows, which tests copy: to create the schema takes longer than most of them. It
/// lies beside the test program and is created anew with each build of that.
fn empty_database() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let empty = program.with_extension("empty.db");
    let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    let built = modified(&program).unwrap();
    if modified(&empty).is_ok_and(|created| created >= built) {
        return empty;
    }
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let path = folder.path().join("echo.db");
    let clock = Arc::new(ManualClock::at(Nanos::EARLIEST));
    drop(DuckDbStore::open(&scratch_config(&path), clock).unwrap());
    // Programs that run at the same time replace it with an equal one.
    fs::rename(path, &empty).unwrap();
    empty
}

/// The program `fleet-echo` of the same build, since programs of tests run no statements.
pub(super) fn sql_program() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let is_of_tests = folder.ends_with("deps");
    let folder = if is_of_tests {
        folder.parent().unwrap()
    } else {
        folder
    };
    folder.join("fleet-echo")
}

fn scratch_config(path: &Path) -> DuckDbConfig {
    DuckDbConfig {
        memory_limit: Amount::Bytes(256_000_000),
        threads: Some(1),
        readers: 1,
        checkpoint_every: Duration::from_hours(1),
        limits: Limits::default().without_retention(),
        ..DuckDbConfig::new(path)
    }
}
