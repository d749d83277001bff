//! Shutdown signal for a thread.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Shutdown signal.
#[derive(Debug, Default)]
pub(super) struct Signal {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Sends the signal.
    pub(super) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Returns true if the signal was sent.
    pub(super) fn stopped(&self) -> bool {
        self.stopped_within(Duration::ZERO)
    }

    /// Waits for at most `time`. Returns whether the signal was sent.
    pub(super) fn stopped_within(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let (stopped, _) = self
            .changed
            .wait_timeout_while(stopped, time, |stopped| !*stopped)
            .unwrap_or_else(PoisonError::into_inner);
        *stopped
    }
}
