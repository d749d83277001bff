//! Counts of file reloads, and whether the last one failed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reload counts of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reload {
    /// Successful reloads.
    pub succeeded: u64,
    /// Failed reloads.
    pub failed: u64,
    /// Whether the last reload failed, so that an older version is in use.
    pub is_failing: bool,
}

/// Reload counts by source. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Reloads(Arc<Mutex<BTreeMap<&'static str, Reload>>>);

impl Reloads {
    /// Adds a source without reloads.
    pub fn register(&self, name: &'static str) {
        self.all().entry(name).or_default();
    }

    /// Counts a successful reload.
    pub fn succeeded(&self, name: &'static str) {
        self.change(name, |reload| {
            reload.succeeded += 1;
            reload.is_failing = false;
        });
    }

    /// Counts a failed reload.
    pub fn failed(&self, name: &'static str) {
        self.change(name, |reload| {
            reload.failed += 1;
            reload.is_failing = true;
        });
    }

    fn change(&self, name: &'static str, change: impl FnOnce(&mut Reload)) {
        change(self.all().entry(name).or_default());
    }

    /// Returns the counts of all sources.
    pub fn counts(&self) -> BTreeMap<&'static str, Reload> {
        self.all().clone()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, Reload>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
