//! Watches over a statement, on a thread of its own, and stops it when it has to end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use duckdb::{Connection, InterruptHandle};

use crate::store::timings::Stopwatch;

/// Time between two looks at the memory, and between two interrupts: one can come while nothing runs that hears it.
const LOOK: Duration = Duration::from_millis(50);
const AGAIN: Duration = Duration::from_millis(250);

/// What is said of a statement that does not hear.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Memory in use but for what only keeps the database file at hand and is given up at once.
const IN_USE: &str =
    "SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory() WHERE tag <> 'BASE_TABLE'";

/// Why a statement was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its time was over.
    Deadline,
    /// Nobody waits for it any more.
    Abandoned,
    /// It took too much memory.
    Memory,
}

/// When a statement is stopped.
#[derive(Debug)]
pub(super) struct Rules {
    /// How long it may run.
    pub(super) deadline: Duration,
    /// How much memory it may take; nothing when that is not watched.
    pub(super) memory: Option<Memory>,
}

/// Looks how much memory is in use.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    connection: Arc<Mutex<Connection>>,
    budget_bytes: u64,
}

impl Memory {
    /// Looks through a connection whether more than so many bytes were added.
    pub(super) const fn new(connection: Arc<Mutex<Connection>>, budget_bytes: u64) -> Self {
        Self {
            connection,
            budget_bytes,
        }
    }

    /// Bytes in use; nothing when that cannot be said.
    fn in_use(&self) -> Option<u64> {
        let asked = lock(&self.connection).query_row(IN_USE, [], |row| row.get::<_, i64>(0));
        asked.ok().and_then(|bytes| u64::try_from(bytes).ok())
    }
}

/// What is known of a statement.
#[derive(Debug, Default)]
struct State {
    is_done: bool,
    is_abandoned: bool,
}

/// A statement that is watched.
#[derive(Debug, Default)]
pub(super) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

/// Says that nobody waits any more, when it is dropped.
#[derive(Debug)]
pub(super) struct Abandon(Arc<Watch>);

impl Abandon {
    /// For this statement.
    pub(super) fn of(watch: &Arc<Watch>) -> Self {
        Self(Arc::clone(watch))
    }
}

impl Drop for Abandon {
    fn drop(&mut self) {
        lock(&self.0.state).is_abandoned = true;
        self.0.changed.notify_all();
    }
}

/// Ends the watch when it is dropped, also by a panic.
struct Done<'a>(&'a Watch);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).is_done = true;
        self.0.changed.notify_all();
    }
}

impl Watch {
    /// Does the work under watch. Returns what it came to, and why it was stopped, if it was.
    pub(super) fn during<T>(
        &self,
        rules: &Rules,
        interrupt: &InterruptHandle,
        work: impl FnOnce() -> T,
    ) -> (T, Option<Stop>) {
        thread::scope(|scope| {
            let watcher = scope.spawn(|| self.watch(rules, interrupt));
            let done = Done(self);
            let outcome = work();
            drop(done);
            (outcome, watcher.join().unwrap_or(None))
        })
    }

    fn watch(&self, rules: &Rules, interrupt: &InterruptHandle) -> Option<Stop> {
        let begun = Stopwatch::start();
        let memory = rules.memory.as_ref();
        let before = memory.and_then(Memory::in_use).unwrap_or(0);
        let most = memory.map(|memory| before.saturating_add(memory.budget_bytes));
        let mut stop = None;
        let mut is_told = false;
        loop {
            let pause = if stop.is_some() { AGAIN } else { LOOK };
            let left = rules.deadline.saturating_sub(begun.elapsed());
            let pause = if stop.is_none() {
                pause.min(left)
            } else {
                pause
            };
            let (is_done, is_abandoned) = self.wait(pause, stop == Some(Stop::Abandoned));
            if is_done {
                return stop;
            }
            stop = stop.or_else(|| {
                let takes_much = || memory.and_then(Memory::in_use) > most.or(Some(u64::MAX));
                if is_abandoned {
                    Some(Stop::Abandoned)
                } else if begun.elapsed() >= rules.deadline {
                    Some(Stop::Deadline)
                } else {
                    takes_much().then_some(Stop::Memory)
                }
            });
            if stop.is_some() {
                interrupt.interrupt();
            }
            if begun.elapsed() > rules.deadline + STUCK_AFTER && !is_told {
                is_told = true;
                tracing::warn!(
                    after_s = begun.elapsed().as_secs(),
                    "a statement does not stop; its place is out of use until it does"
                );
            }
        }
    }

    /// Waits until something changes, for a while at most. Whether it is done, and whether it is abandoned.
    fn wait(&self, pause: Duration, was_abandoned: bool) -> (bool, bool) {
        let is_as_before = |state: &mut State| {
            let State {
                is_done,
                is_abandoned,
            } = *state;
            !is_done && is_abandoned == was_abandoned
        };
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.state), pause, is_as_before);
        let (state, _timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        (state.is_done, state.is_abandoned)
    }
}

// Nothing that holds one of these locks can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
