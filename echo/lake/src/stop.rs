//! Stop signal that ends waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Stop signal. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    is_requested: bool,
    has_ended: bool,
}

impl Stop {
    /// Requests the end.
    pub(crate) fn request(&self) {
        self.state().is_requested = true;
        self.0.changed.notify_all();
    }

    /// Reports the end.
    pub(crate) fn end(&self) {
        self.state().has_ended = true;
        self.0.changed.notify_all();
    }

    /// Returns whether the end is requested.
    pub(crate) fn is_requested(&self) -> bool {
        self.state().is_requested
    }

    /// Waits for at most `time`. Returns whether the end is requested.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        self.wait_for(time, |state| state.is_requested)
    }

    /// Waits for the end for at most `time`. Returns whether it has come.
    pub(crate) fn wait_for_end(&self, time: Duration) -> bool {
        self.wait_for(time, |state| state.has_ended)
    }

    fn wait_for(&self, time: Duration, has_come: impl Fn(State) -> bool) -> bool {
        let changed = &self.0.changed;
        let waited = changed.wait_timeout_while(self.state(), time, |state| !has_come(*state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        has_come(*state)
    }

    // No code that holds the lock can panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
