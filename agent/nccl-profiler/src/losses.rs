//! Counters of records that were not emitted, by reason, since the library was loaded.

use crate::sync::{AtomicU64, Ordering};

/// Counters of losses.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Operations for which every slot of the pool was in use.
    pub(crate) pool_full: AtomicU64,
    /// Operations that never ended, and whose slot was reused.
    pub(crate) abandoned: AtomicU64,
    /// Operations that ended before they began, by NCCL's times.
    pub(crate) implausible: AtomicU64,
    /// Communicators beyond the maximum number.
    pub(crate) comms: AtomicU64,
    /// Datagrams that the socket did not accept.
    pub(crate) unsent: AtomicU64,
    /// Calls that failed although the code rules that out.
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

    /// Increments a counter.
    pub(crate) fn increment(loss: &AtomicU64) {
        loss.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the operations that began and were not emitted.
    pub(crate) fn operations(&self) -> u64 {
        let all = [&self.pool_full, &self.abandoned, &self.implausible];
        all.iter().fold(0, |sum: u64, loss| {
            sum.wrapping_add(loss.load(Ordering::Relaxed))
        })
    }
}
