//! Databases for tests of this and other packages.

#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "only tests of this package and others see it"
)]

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
        let config = DuckDbConfig {
            memory_limit: Amount::Bytes(256_000_000),
            threads: Some(1),
            readers: 1,
            checkpoint_every: Duration::from_hours(1),
            limits: Limits {
                age: None,
                cost_age: None,
                size: None,
                floor: Some(Amount::Bytes(0)),
                ballast_bytes: 0,
                ..Limits::default()
            },
            ..DuckDbConfig::new(folder.path().join("echo.db"))
        };
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
