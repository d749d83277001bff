//! What was not told, by reason. Counts since the library was loaded.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of everything that is left out.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Operations: every place of the pool is taken by one that began lately.
    pub(crate) pool_full: AtomicU64,
    /// Operations that were never seen to end, and whose place another one has got.
    pub(crate) abandoned: AtomicU64,
    /// Operations that ended before they began, by the times that NCCL gave.
    pub(crate) implausible: AtomicU64,
    /// Communicators: too many at once.
    pub(crate) comms: AtomicU64,
    /// Datagrams that the socket did not take.
    pub(crate) unsent: AtomicU64,
    /// Calls that failed in a way that the code rules out.
    pub(crate) failures: AtomicU64,
}

impl Losses {
    pub(crate) const fn new() -> Self {
        Self {
            pool_full: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            implausible: AtomicU64::new(0),
            comms: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// One more.
    pub(crate) fn count(loss: &AtomicU64) {
        loss.fetch_add(1, Ordering::Relaxed);
    }

    /// Operations that began and were not told.
    pub(crate) fn operations(&self) -> u64 {
        let all = [&self.pool_full, &self.abandoned, &self.implausible];
        all.iter().fold(0, |sum: u64, loss| {
            sum.wrapping_add(loss.load(Ordering::Relaxed))
        })
    }
}
