//! Stop signal that ends waits, and statements.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time between two interrupts: the one before may have come between two statements.
const INTERRUPT_EVERY: Duration = Duration::from_millis(100);

/// Stop signal. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    interrupt: Mutex<Interrupt>,
}

/// Ends the statement that is running.
#[derive(Default)]
struct Interrupt(Option<Box<dyn Fn() + Send>>);

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupt").finish_non_exhaustive()
    }
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

    /// Sets what ends the statement that is running.
    pub(crate) fn set_interrupt(&self, interrupt: impl Fn() + Send + 'static) {
        self.interrupt().0 = Some(Box::new(interrupt));
    }

    /// Interrupts statements until the end has come, for at most `attempts` times
    /// [`INTERRUPT_EVERY`]. Returns whether it has come.
    pub(crate) fn interrupt_until_end(&self, attempts: u32) -> bool {
        (0..attempts).any(|_| {
            if let Interrupt(Some(interrupt)) = &*self.interrupt() {
                interrupt();
            }
            self.wait_for_end(INTERRUPT_EVERY)
        })
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

    fn interrupt(&self) -> MutexGuard<'_, Interrupt> {
        let interrupt = self.0.interrupt.lock();
        interrupt.unwrap_or_else(PoisonError::into_inner)
    }

    // No code that holds the lock can panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
