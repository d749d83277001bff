//! Costs by the hour, in memory.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use echo_core::ids::ClusterId;
use echo_core::model::cost::StoredHour;
use echo_core::units::{GpuTime, Hour, Nanos, Window};

use crate::StoreError;
use crate::hours::{Closed, ClosingHour, CostHours, DueHour, Hours, revised};
use crate::memory::{MemoryStore, passes};

/// What is due, and every revision of what was closed, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct HourState {
    hours: Hours,
    stored: Vec<StoredHour>,
}

impl HourState {
    /// Notes that something was stored in these hours.
    pub(super) fn touch(&mut self, hours: BTreeSet<Hour>, when: (Nanos, u64)) {
        self.hours.touch(hours, when);
    }

    fn latest(&self, cluster: Option<&ClusterId>, window: Window) -> Vec<StoredHour> {
        let mut revisions: BTreeMap<(Hour, &ClusterId), u64> = BTreeMap::new();
        for StoredHour { row, revision, .. } in &self.stored {
            let last = revisions.entry((row.hour, &row.cluster)).or_default();
            *last = (*last).max(*revision);
        }
        let mut rows: Vec<StoredHour> = self
            .stored
            .iter()
            .filter(|stored| window.contains(stored.row.hour.begin()))
            .filter(|stored| passes(cluster, Some(&stored.row.cluster)))
            .filter(|stored| {
                let row = &stored.row;
                revisions.get(&(row.hour, &row.cluster)) == Some(&stored.revision)
            })
            .cloned()
            .collect();
        rows.sort_by_key(|StoredHour { row, .. }| {
            let place = (row.cluster.clone(), row.node.clone(), row.gpu_model.clone());
            (row.hour, place)
        });
        rows
    }

    fn close(&mut self, closing: ClosingHour) -> Closed {
        let due = closing.due;
        if !self.hours.is_untouched(&due) {
            return Closed::Touched;
        }
        let known = self.latest(None, due.hour.window());
        let added = revised(&known, closing.rows);
        self.hours
            .close(due.hour, !(known.is_empty() && added.is_empty()));
        if added.is_empty() {
            return Closed::Same;
        }
        let clusters: BTreeSet<ClusterId> =
            added.iter().map(|(_, row)| row.cluster.clone()).collect();
        let stored = added.into_iter().map(|(revision, row)| StoredHour {
            row,
            revision,
            computed: due.until,
        });
        self.stored.extend(stored);
        Closed::Revised(clusters.len())
    }
}

#[async_trait]
impl CostHours for MemoryStore {
    fn due_hours(&self) -> Vec<DueHour> {
        self.with(|state| state.hours.hours.due())
    }

    async fn close_hour(&self, closing: ClosingHour) -> Result<Closed, StoreError> {
        Ok(self.with(|state| state.hours.close(closing)))
    }

    async fn cost_hours(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
        limit: usize,
    ) -> Result<Vec<StoredHour>, StoreError> {
        let mut rows = self.with(|state| state.hours.latest(cluster, window));
        rows.truncate(limit);
        Ok(rows)
    }

    async fn cost_clusters(&self, window: Window) -> Result<BTreeSet<ClusterId>, StoreError> {
        let rows = self.with(|state| state.hours.latest(None, window));
        Ok(rows.into_iter().map(|stored| stored.row.cluster).collect())
    }

    async fn closed_allocation(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<GpuTime, StoreError> {
        let rows = self.with(|state| state.hours.latest(cluster, window));
        Ok(rows.iter().map(|stored| stored.row.allocated).sum())
    }
}
