//! Hourly costs: hours that are due to be computed, and closed hours.
//!
//! Storing anything in an hour marks it as due in the same transaction; closing the hour clears the
//! mark. So no hour is missed, whenever the process ends. A closed hour that becomes due again gets
//! another revision if its costs have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use echo_core::ids::ClusterId;
use echo_core::model::cost::{NodeHour, NodeSum, StoredHour};
use echo_core::units::{GpuTime, Hour, Nanos, Window};

use crate::StoreError;

/// Storage of hourly costs. Computing them is up to the caller.
#[async_trait]
pub trait CostHours: Send + Sync {
    /// Hours that changed since they were closed, oldest first.
    fn due_hours(&self) -> Vec<DueHour> {
        Vec::new()
    }

    /// Hours whose costs may still change: those that are due, and those that other instances had
    /// due when they last copied to a lake that is read. Without those in which the cluster, if one
    /// is named, has no part.
    async fn unsettled_hours(
        &self,
        _cluster: Option<&ClusterId>,
    ) -> Result<Vec<UnsettledHour>, StoreError> {
        Err(StoreError::Closed)
    }

    /// Stores the costs of an hour durably, unless the hour has changed since `closing` was read.
    async fn close_hour(&self, _closing: ClosingHour) -> Result<Closed, StoreError> {
        Err(StoreError::Closed)
    }

    /// Latest revisions of hours that begin in the window, in order of hour, cluster, node and
    /// model; at most `limit` rows.
    async fn cost_hours(
        &self,
        _cluster: Option<&ClusterId>,
        _window: Window,
        _limit: usize,
    ) -> Result<Vec<StoredHour>, StoreError> {
        Err(StoreError::Closed)
    }

    /// Sums of the latest revisions of hours that begin in the window, in order of cluster, node and
    /// model.
    async fn cost_sums(
        &self,
        _cluster: Option<&ClusterId>,
        _window: Window,
    ) -> Result<Vec<NodeSum>, StoreError> {
        Err(StoreError::Closed)
    }

    /// Clusters with closed hours in the window.
    async fn cost_clusters(&self, _window: Window) -> Result<BTreeSet<ClusterId>, StoreError> {
        Err(StoreError::Closed)
    }

    /// GPU time allocated in the closed hours that begin in the window.
    async fn closed_allocation(
        &self,
        _cluster: Option<&ClusterId>,
        _window: Window,
    ) -> Result<GpuTime, StoreError> {
        Err(StoreError::Closed)
    }
}

/// Hour that is due to be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueHour {
    /// The hour.
    pub hour: Hour,
    /// True if it was closed before.
    pub was_closed: bool,
    /// Time of the first change since then, on Echo's clock; the earliest possible time after a
    /// restart.
    pub since: Nanos,
    /// Time of the last change.
    pub until: Nanos,
    /// Number of the last event committed by then.
    pub last_event: u64,
    /// Version of the hour, which differs after every change.
    pub version: u64,
}

/// Hour whose costs may still change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsettledHour {
    /// The hour.
    pub hour: Hour,
    /// True if it was closed before.
    pub was_closed: bool,
    /// Clusters whose costs may change; `None` for all.
    pub clusters: Option<Arc<BTreeSet<ClusterId>>>,
}

impl UnsettledHour {
    /// Returns whether the costs of the cluster may change.
    pub fn concerns(&self, cluster: &ClusterId) -> bool {
        let clusters = self.clusters.as_ref();
        clusters.is_none_or(|clusters| clusters.contains(cluster))
    }
}

impl From<DueHour> for UnsettledHour {
    /// Unsettled for all clusters.
    fn from(due: DueHour) -> Self {
        Self {
            hour: due.hour,
            was_closed: due.was_closed,
            clusters: None,
        }
    }
}

/// Costs of an hour to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosingHour {
    /// The due hour as read before its costs were computed.
    pub due: DueHour,
    /// All rows of the hour.
    pub rows: Vec<NodeHour>,
}

/// Outcome of closing an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// The costs equal the stored ones; nothing was added.
    Same,
    /// Number of clusters that got a new revision.
    Revised(usize),
    /// The hour changed meanwhile and is still due.
    Touched,
}

/// Due and closed hours, and those that are due in other instances.
#[derive(Debug, Default)]
pub(super) struct Hours {
    version: u64,
    due: BTreeMap<Hour, DueHour>,
    closed: BTreeSet<Hour>,
    elsewhere: Vec<UnsettledHour>,
}

impl Hours {
    /// Marks hours as changed.
    pub(super) fn touch(
        &mut self,
        hours: impl IntoIterator<Item = Hour>,
        now: Nanos,
        last_event: u64,
    ) {
        self.version += 1;
        for hour in hours {
            let due = self.due.entry(hour).or_insert_with(|| DueHour {
                hour,
                was_closed: self.closed.contains(&hour),
                since: now,
                until: now,
                last_event,
                version: self.version,
            });
            due.until = due.until.max(now);
            (due.last_event, due.version) = (last_event, self.version);
        }
    }

    /// Returns true if the hour is unchanged since `due` was read.
    pub(super) fn is_untouched(&self, due: &DueHour) -> bool {
        let known = self.due.get(&due.hour);
        known.is_some_and(|known| known.version == due.version)
    }

    /// Clears the due mark of an hour, and marks it as closed if it has rows.
    pub(super) fn close(&mut self, hour: Hour, has_rows: bool) {
        self.due.remove(&hour);
        if has_rows {
            self.closed.insert(hour);
        }
    }

    /// Due hours, oldest first.
    pub(super) fn due(&self) -> Vec<DueHour> {
        self.due.values().copied().collect()
    }

    /// Sets the hours that are due in other instances.
    pub(super) fn set_elsewhere(&mut self, hours: Vec<UnsettledHour>) {
        self.elsewhere = hours;
    }

    /// Due hours, here and in other instances, in which the cluster has a part.
    pub(super) fn unsettled(&self, cluster: Option<&ClusterId>) -> Vec<UnsettledHour> {
        let is_asked_for =
            |hour: &&UnsettledHour| cluster.is_none_or(|cluster| hour.concerns(cluster));
        let elsewhere = self.elsewhere.iter().filter(is_asked_for).cloned();
        let here = self.due.values().copied().map(UnsettledHour::from);
        here.chain(elsewhere).collect()
    }

    /// State as stored in a database whose last event has the number `last_event`.
    pub(super) fn load(due: Vec<Hour>, closed: BTreeSet<Hour>, last_event: u64) -> Self {
        let mut hours = Self {
            closed,
            ..Self::default()
        };
        hours.touch(due, Nanos::EARLIEST, last_event);
        hours
    }

    /// Those of `hours` that are not due yet.
    pub(super) fn not_due(&self, hours: &BTreeSet<Hour>) -> Vec<Hour> {
        let new = hours.iter().filter(|hour| !self.due.contains_key(hour));
        new.copied().collect()
    }

    /// Drops closed hours that begin before `cutoff`.
    pub(super) fn forget_before(&mut self, cutoff: Nanos) {
        self.closed.retain(|hour| hour.begin() >= cutoff);
    }
}

/// Hours that contain the instants.
pub(super) fn hours_of(instants: impl Iterator<Item = Nanos>) -> BTreeSet<Hour> {
    let mut hours = BTreeSet::new();
    let mut latest = None;
    for instant in instants {
        let hour = Hour::containing(instant);
        // Almost always the hour of the previous event.
        if latest != Some(hour) {
            latest = Some(hour);
            hours.insert(hour);
        }
    }
    hours
}

/// Rows to add so that `rows` become the latest revisions: all rows of each cluster in which
/// something differs, with their new revision.
pub(super) fn revised(known: &[StoredHour], rows: Vec<NodeHour>) -> Vec<(u64, NodeHour)> {
    let mut clusters: BTreeMap<ClusterId, Vec<NodeHour>> = BTreeMap::new();
    for row in rows {
        clusters.entry(row.cluster.clone()).or_default().push(row);
    }
    let mut added = Vec::new();
    for (cluster, rows) in clusters {
        let of_cluster = |stored: &&StoredHour| stored.row.cluster == cluster;
        let before = known.iter().filter(of_cluster).map(|stored| &stored.row);
        if !before.eq(rows.iter()) {
            let last = known.iter().find(of_cluster);
            let revision = last.map_or(0, |stored| stored.revision) + 1;
            added.extend(rows.into_iter().map(|row| (revision, row)));
        }
    }
    added
}
