//! Progress of those who read the events before retention deletes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;

/// Progress of the detector and of the copy in a lake. Clones share it.
#[derive(Debug, Clone)]
pub(in crate::duckdb) struct Progress {
    /// Number of the last event that the detector has read.
    pub(in crate::duckdb) followed: Arc<AtomicU64>,
    /// Number of the last event that the lake has as well; the maximum without a lake.
    pub(in crate::duckdb) copied: Arc<AtomicU64>,
    /// Events deleted before the lake had them.
    pub(in crate::duckdb) lost: Counter,
}

impl Progress {
    /// Nothing is read yet; whether events are kept until they are copied.
    pub(in crate::duckdb) fn new(keep_until_copied: bool) -> Self {
        let copied = if keep_until_copied { 0 } else { u64::MAX };
        Self {
            followed: Arc::new(AtomicU64::new(0)),
            copied: Arc::new(AtomicU64::new(copied)),
            lost: Counter::default(),
        }
    }

    /// Returns whether the detector has read the events up to `last`.
    pub(super) fn is_followed(&self, last: u64) -> bool {
        last <= self.followed.load(Ordering::Acquire)
    }

    /// Returns whether the lake has the events up to `last`.
    pub(super) fn is_copied(&self, last: u64) -> bool {
        last <= self.copied.load(Ordering::Acquire)
    }

    /// Returns whether events are kept until they are copied.
    pub(in crate::duckdb) fn waits_for_copies(&self) -> bool {
        self.copied.load(Ordering::Acquire) != u64::MAX
    }

    /// Reports events deleted before the lake had them.
    pub(super) fn lose(&self, deleted: u64) {
        self.lost.inc_by(deleted);
        tracing::warn!(
            "the volume is full: {deleted} events were deleted before the lake had them"
        );
    }
}
