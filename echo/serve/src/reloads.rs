//! How often files were read again, and whether that failed the last time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What became of reading one source again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reload {
    /// Times that it was taken over.
    pub succeeded: u64,
    /// Times that it could not be used.
    pub failed: u64,
    /// Whether the last time failed, so that something older is in force than the files hold.
    pub is_failing: bool,
}

/// By name of the source. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Reloads(Arc<Mutex<BTreeMap<&'static str, Reload>>>);

impl Reloads {
    /// Knows a source that has not changed yet.
    pub fn register(&self, name: &'static str) {
        self.all().entry(name).or_default();
    }

    /// Counts that it was taken over.
    pub fn succeeded(&self, name: &'static str) {
        self.change(name, |reload| {
            reload.succeeded += 1;
            reload.is_failing = false;
        });
    }

    /// Counts that it could not be used.
    pub fn failed(&self, name: &'static str) {
        self.change(name, |reload| {
            reload.failed += 1;
            reload.is_failing = true;
        });
    }

    fn change(&self, name: &'static str, change: impl FnOnce(&mut Reload)) {
        change(self.all().entry(name).or_default());
    }

    /// All of them.
    pub fn counts(&self) -> BTreeMap<&'static str, Reload> {
        self.all().clone()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, Reload>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
