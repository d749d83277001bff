//! Hourly costs in the database. Due and closed hours are also kept in memory, because every commit
//! needs them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use echo_core::ids::ClusterId;
use echo_core::model::cost::{NodeSum, StoredHour};
use echo_core::units::{GpuTime, Hour, Nanos, Window};

use crate::StoreError;
use crate::duckdb::DuckDbStore;
use crate::duckdb::connection_pool::Reader;
use crate::duckdb::rows::hours;
use crate::hours::{Closed, ClosingHour, CostHours, DueHour, Hours, UnsettledHour};

/// Due and closed hours as known to the writer.
#[derive(Debug, Default)]
pub(super) struct HoursCache(Mutex<Hours>);

impl HoursCache {
    /// Sets the hours stored in the database.
    pub(super) fn fill(&self, hours: Hours) {
        self.with(|known| *known = hours);
    }

    /// Those of `hours` that are not due yet.
    pub(super) fn not_due(&self, hours: &BTreeSet<Hour>) -> Vec<Hour> {
        self.with(|known| known.not_due(hours))
    }

    /// Marks committed hours as changed, before the commit is acknowledged.
    pub(super) fn touch(&self, hours: BTreeSet<Hour>, now: Nanos, last_event: u64) {
        self.with(|known| known.touch(hours, now, last_event));
    }

    /// Returns true if the hour is unchanged since `due` was read.
    pub(super) fn is_untouched(&self, due: &DueHour) -> bool {
        self.with(|known| known.is_untouched(due))
    }

    /// Clears the due mark of an hour.
    pub(super) fn close(&self, hour: Hour, has_rows: bool) {
        self.with(|known| known.close(hour, has_rows));
    }

    /// Drops closed hours that begin before `cutoff`.
    pub(super) fn forget_before(&self, cutoff: Nanos) {
        self.with(|known| known.forget_before(cutoff));
    }

    /// Sets the hours that are due in other instances.
    pub(super) fn set_elsewhere(&self, hours: Vec<UnsettledHour>) {
        self.with(|known| known.set_elsewhere(hours));
    }

    /// Runs `use_hours` under the lock. It must not panic.
    fn with<T>(&self, use_hours: impl FnOnce(&mut Hours) -> T) -> T {
        use_hours(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl CostHours for DuckDbStore {
    fn due_hours(&self) -> Vec<DueHour> {
        self.hours.with(|hours| hours.due())
    }

    async fn unsettled_hours(
        &self,
        cluster: Option<&ClusterId>,
    ) -> Result<Vec<UnsettledHour>, StoreError> {
        Ok(self.hours.with(|hours| hours.unsettled(cluster)))
    }

    async fn close_hour(&self, closing: ClosingHour) -> Result<Closed, StoreError> {
        self.writer.close_hour(closing).await
    }

    async fn cost_hours(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
        limit: usize,
    ) -> Result<Vec<StoredHour>, StoreError> {
        let query = hours::in_window(cluster, window, limit);
        let doing = "reading closed hours";
        self.readers.collect(doing, query, hours::read).await
    }

    async fn cost_sums(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<NodeSum>, StoreError> {
        let query = hours::sums(cluster, window);
        let doing = "summing closed hours by node";
        self.readers.collect(doing, query, hours::read_sums).await
    }

    async fn cost_clusters(&self, window: Window) -> Result<BTreeSet<ClusterId>, StoreError> {
        let query = hours::clusters(window);
        let doing = "looking for clusters with closed hours";
        self.readers
            .collect(doing, query, hours::read_clusters)
            .await
    }

    async fn closed_allocation(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<GpuTime, StoreError> {
        let query = hours::allocation(cluster, window);
        let read = move |reader: &Reader| {
            let mut sum = GpuTime::ZERO;
            reader.each_batch(&query, |batch| {
                sum = sum + hours::read_allocation(batch)?;
                Ok(())
            })?;
            Ok(sum)
        };
        self.readers.run("summing closed hours", read).await
    }
}
