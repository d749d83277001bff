//! Gate that queries pass, so that a checkpoint can find the database without any of them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Gate that queries pass.
#[derive(Debug, Default)]
pub(super) struct ReadGate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    n_reading: u32,
    is_closed: bool,
}

/// Running query.
#[derive(Debug)]
pub(super) struct Reading<'g>(&'g ReadGate);

/// Closed gate; opened on drop.
#[derive(Debug)]
pub(super) struct Closed<'g>(&'g ReadGate);

impl ReadGate {
    /// Waits until the gate is open, and passes it.
    pub(super) fn enter(&self) -> Reading<'_> {
        let waited = self
            .changed
            .wait_while(self.state(), |state| state.is_closed);
        waited.unwrap_or_else(PoisonError::into_inner).n_reading += 1;
        Reading(self)
    }

    /// Closes the gate and waits until no query is running; none if that takes longer than
    /// `patience`, and then the gate is open again.
    pub(super) fn close(&self, patience: Duration) -> Option<Closed<'_>> {
        self.change(|state| state.is_closed = true);
        let closed = Closed(self);
        let waited = self
            .changed
            .wait_timeout_while(self.state(), patience, |state| state.n_reading > 0);
        let is_empty = waited.unwrap_or_else(PoisonError::into_inner).0.n_reading == 0;
        is_empty.then_some(closed)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    // No code that holds the lock can panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.n_reading -= 1);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.is_closed = false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::ReadGate;

    const PATIENCE: Duration = Duration::from_mins(1);

    #[test]
    fn the_gate_closes_when_the_last_query_ends_and_holds_back_later_ones() {
        let gate = ReadGate::default();
        let running = gate.enter();
        std::thread::scope(|scope| {
            let (order, seen) = mpsc::channel();
            let closing = order.clone();
            scope.spawn(|| {
                let closed = gate.close(PATIENCE);
                closing.send("closed").unwrap();
                drop(closing);
                scope.spawn(|| {
                    let _reading = gate.enter();
                    order.send("entered").unwrap();
                    drop(order);
                });
                drop(closed);
            });
            drop(running);
            assert_eq!(seen.iter().collect::<Vec<_>>(), ["closed", "entered"]);
        });
    }

    #[test]
    fn a_gate_that_cannot_be_closed_in_time_is_open_again() {
        let gate = ReadGate::default();
        let _running = gate.enter();
        assert!(gate.close(Duration::ZERO).is_none());
        let _second = gate.enter();
    }
}
