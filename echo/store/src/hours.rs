//! Costs by the hour: which hours have to be computed, and those that have been.
//!
//! Whatever is stored makes the hours due that it lies in, in the same transaction; closing an hour ends that. So no hour is
//! forgotten, whenever the process ends. An hour that was closed and becomes due again gets a further revision, if its costs
//! have changed.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use echo_core::ids::ClusterId;
use echo_core::model::cost::{NodeHour, StoredHour};
use echo_core::units::{GpuTime, Hour, Nanos, Window};

use crate::StoreError;

/// The part of a store that keeps costs by the hour. Computing them is up to others.
#[async_trait]
pub trait CostHours: Send + Sync {
    /// Hours in which something was stored since they were closed, oldest first.
    fn due_hours(&self) -> Vec<DueHour> {
        Vec::new()
    }

    /// Stores what an hour came to, durably, unless something was stored in it since it was due as `closing` says.
    async fn close_hour(&self, _closing: ClosingHour) -> Result<Closed, StoreError> {
        Err(StoreError::Closed)
    }

    /// The latest revisions of hours that begin in the window, in the order of hour, cluster, node and model; no more than
    /// `limit` rows.
    async fn cost_hours(
        &self,
        _cluster: Option<&ClusterId>,
        _window: Window,
        _limit: usize,
    ) -> Result<Vec<StoredHour>, StoreError> {
        Err(StoreError::Closed)
    }

    /// Clusters that have closed hours in the window.
    async fn cost_clusters(&self, _window: Window) -> Result<BTreeSet<ClusterId>, StoreError> {
        Err(StoreError::Closed)
    }

    /// GPU time that was allocated in the closed hours that begin in the window.
    async fn closed_allocation(
        &self,
        _cluster: Option<&ClusterId>,
        _window: Window,
    ) -> Result<GpuTime, StoreError> {
        Err(StoreError::Closed)
    }
}

/// An hour that has to be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueHour {
    /// The hour.
    pub hour: Hour,
    /// Whether it was closed before.
    pub was_closed: bool,
    /// When something was first stored in it since then, on the clock of Echo; the beginning of time after a restart.
    pub since: Nanos,
    /// When something was last stored in it.
    pub until: Nanos,
    /// Number of the last event that was committed by then.
    pub last_event: u64,
    /// Changes with everything that is stored in it.
    pub turn: u64,
}

/// What an hour came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosingHour {
    /// The hour as it was due before anything was read for it.
    pub due: DueHour,
    /// All its rows.
    pub rows: Vec<NodeHour>,
}

/// What became of closing an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It came to what was stored before; nothing was added.
    Same,
    /// A new revision was added for so many clusters.
    Revised(usize),
    /// Something was stored in it meanwhile; it is still due.
    Touched,
}

/// Which hours are due and which are closed.
#[derive(Debug, Default)]
pub(super) struct Hours {
    turn: u64,
    due: BTreeMap<Hour, DueHour>,
    closed: BTreeSet<Hour>,
}

impl Hours {
    /// Notes that something was stored in these hours.
    pub(super) fn touch(
        &mut self,
        hours: impl IntoIterator<Item = Hour>,
        (now, last_event): (Nanos, u64),
    ) {
        self.turn += 1;
        for hour in hours {
            let due = self.due.entry(hour).or_insert_with(|| DueHour {
                hour,
                was_closed: self.closed.contains(&hour),
                since: now,
                until: now,
                last_event,
                turn: self.turn,
            });
            due.until = due.until.max(now);
            (due.last_event, due.turn) = (last_event, self.turn);
        }
    }

    /// Whether nothing was stored in the hour since it was due like this.
    pub(super) fn is_untouched(&self, due: &DueHour) -> bool {
        let known = self.due.get(&due.hour);
        known.is_some_and(|known| known.turn == due.turn)
    }

    /// Notes that an hour is no longer due, and, if anything is stored of it, closed.
    pub(super) fn close(&mut self, hour: Hour, has_rows: bool) {
        self.due.remove(&hour);
        if has_rows {
            self.closed.insert(hour);
        }
    }

    /// The hours that are due, oldest first.
    pub(super) fn due(&self) -> Vec<DueHour> {
        self.due.values().copied().collect()
    }

    /// What a database says after a restart, when its last event has the number `last_event`.
    pub(super) fn of(due: Vec<Hour>, closed: BTreeSet<Hour>, last_event: u64) -> Self {
        let mut hours = Self {
            closed,
            ..Self::default()
        };
        hours.touch(due, (Nanos::EARLIEST, last_event));
        hours
    }

    /// Hours of these that are not due yet.
    pub(super) fn not_due(&self, hours: &BTreeSet<Hour>) -> Vec<Hour> {
        let new = hours.iter().filter(|hour| !self.due.contains_key(hour));
        new.copied().collect()
    }

    /// Forgets closed hours that begin before `cutoff`.
    pub(super) fn forget_before(&mut self, cutoff: Nanos) {
        self.closed.retain(|hour| hour.begin() >= cutoff);
    }
}

/// The hours that instants lie in.
pub(super) fn hours_of(instants: impl Iterator<Item = Nanos>) -> BTreeSet<Hour> {
    let mut hours = BTreeSet::new();
    let mut latest = None;
    for instant in instants {
        let hour = Hour::containing(instant);
        // Almost always the same as that of the event before.
        if latest != Some(hour) {
            latest = Some(hour);
            hours.insert(hour);
        }
    }
    hours
}

/// What has to be added so that the latest revisions are `rows`: the rows of the clusters in which something differs, with their
/// new number.
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
