//! Watches a statement from a separate thread, and stops it when it must end.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use crate::duckdb::sql::SPARE_CONNECTIONS;
use crate::duckdb::sql::memory::{Memory, Share};
use crate::timings::Stopwatch;

/// Interval of memory checks, and of interrupts: an interrupt has no effect if nothing is running
/// at that moment.
const POLL_EVERY: Duration = Duration::from_millis(10);
const INTERRUPT_EVERY: Duration = Duration::from_millis(250);

/// Time after its deadline at which a statement counts as stuck and gives its run slot to the next.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(1);

/// Reason for stopping a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its deadline has passed.
    Deadline,
    /// Its caller is gone.
    Abandoned,
    /// It used too much memory.
    Memory,
}

/// Conditions for stopping a statement.
#[derive(Debug)]
pub(super) struct Rules {
    /// Maximum run time.
    pub(super) deadline: Duration,
    /// Time after that at which it counts as stuck.
    pub(super) stuck_after: Duration,
    /// Counter of stuck statements.
    pub(super) stuck: Stuck,
    /// Run slot that it gives up when stuck.
    pub(super) slot: RunSlot,
    /// Share of the memory budget; `None` if memory is not watched.
    pub(super) memory: Option<Memory>,
}

/// Run slot of a statement; released on drop.
#[derive(Debug, Default)]
pub(super) struct RunSlot(Mutex<Option<OwnedSemaphorePermit>>);

impl RunSlot {
    /// Run slot with this permit.
    pub(super) const fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Mutex::new(Some(permit)))
    }

    fn give_up(&self) {
        drop(lock(&self.0).take());
    }
}

/// Number of stuck statements. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Stuck(Arc<AtomicU64>);

/// Counts a stuck statement until dropped.
#[derive(Debug)]
struct StuckGuard<'a>(&'a Stuck);

impl Stuck {
    /// Returns the number of stuck statements.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn one(&self) -> StuckGuard<'_> {
        self.0.fetch_add(1, Relaxed);
        StuckGuard(self)
    }
}

impl Drop for StuckGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// State of a watched statement.
#[derive(Debug, Default)]
struct State {
    is_done: bool,
    is_abandoned: bool,
}

/// Watched statement.
#[derive(Debug, Default)]
pub(super) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

/// Marks the statement as abandoned when dropped.
#[derive(Debug)]
pub(super) struct AbandonOnDrop(Arc<Watch>);

impl AbandonOnDrop {
    /// For this statement.
    pub(super) fn new(watch: &Arc<Watch>) -> Self {
        Self(Arc::clone(watch))
    }
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        lock(&self.0.state).is_abandoned = true;
        self.0.changed.notify_all();
    }
}

/// Ends the watch when dropped, including by a panic.
struct Done<'a>(&'a Watch);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).is_done = true;
        self.0.changed.notify_all();
    }
}

impl Watch {
    /// Runs `work` under watch. Returns its result, and the reason if it was stopped.
    pub(super) fn during<T>(
        &self,
        rules: &Rules,
        interrupt: &(impl Fn() + Sync),
        work: impl FnOnce() -> T,
    ) -> (T, Option<Stop>) {
        let begun = Stopwatch::start();
        let share = rules.memory.as_ref();
        let share = share.map(|memory| memory.share(rules.deadline));
        thread::scope(|scope| {
            let watcher = scope.spawn(|| self.watch(rules, begun, share.as_ref(), interrupt));
            let done = Done(self);
            let outcome = work();
            drop(done);
            (outcome, watcher.join().unwrap_or(None))
        })
    }

    fn watch(
        &self,
        rules: &Rules,
        begun: Stopwatch,
        share: Option<&Share<'_>>,
        interrupt: &impl Fn(),
    ) -> Option<Stop> {
        let mut stop = None;
        let mut stuck = None;
        loop {
            let pause = match stop {
                Some(_) => INTERRUPT_EVERY,
                None => POLL_EVERY.min(rules.deadline.saturating_sub(begun.elapsed())),
            };
            let (is_done, is_abandoned) = self.wait(pause, stop.is_some());
            if is_done {
                return stop;
            }
            stop = stop.or_else(|| {
                if is_abandoned {
                    Some(Stop::Abandoned)
                } else if begun.elapsed() >= rules.deadline {
                    Some(Stop::Deadline)
                } else {
                    share.is_some_and(Share::is_spent).then_some(Stop::Memory)
                }
            });
            if stop.is_some() {
                interrupt();
            }
            if begun.elapsed() > rules.deadline + rules.stuck_after && stuck.is_none() {
                stuck = Some(rules.stuck.one());
                // Beyond that there are no connections for statements that would take over the
                // slots.
                let is_replaced = rules.stuck.count() <= u64::from(SPARE_CONNECTIONS);
                if is_replaced {
                    rules.slot.give_up();
                }
                tracing::warn!(
                    after_s = begun.elapsed().as_secs(),
                    is_replaced,
                    "a statement does not stop"
                );
            }
        }
    }

    /// Waits for a change or for `pause`. Returns whether the statement is done, and whether it was
    /// abandoned, which is ignored if it is already stopped.
    fn wait(&self, pause: Duration, is_stopped: bool) -> (bool, bool) {
        let is_as_before = |state: &mut State| {
            let State {
                is_done,
                is_abandoned,
            } = *state;
            !is_done && (is_stopped || !is_abandoned)
        };
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.state), pause, is_as_before);
        let (state, _timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        (state.is_done, state.is_abandoned)
    }
}

// No code that holds one of these locks can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::{
        AbandonOnDrop, INTERRUPT_EVERY, Rules, RunSlot, SPARE_CONNECTIONS, Stop, Stuck, Watch,
    };

    /// Rules with a passed deadline, and this delay until it counts as stuck.
    fn over(stuck_after: Duration) -> Rules {
        Rules {
            deadline: Duration::ZERO,
            stuck_after,
            stuck: Stuck::default(),
            slot: RunSlot::default(),
            memory: None,
        }
    }

    #[test]
    fn a_stuck_statement_is_counted_until_it_stops() {
        let rules = over(Duration::ZERO);
        let (interrupt, interrupts) = channel();
        let interrupt = move || interrupt.send(()).unwrap();
        let (counted, _) = Watch::default().during(&rules, &interrupt, || {
            // It is interrupted repeatedly, and counted after the first interrupt at the latest.
            interrupts.recv().unwrap();
            interrupts.recv().unwrap();
            rules.stuck.count()
        });
        let left = rules.stuck.count();
        drop(rules);
        assert_eq!((counted, left), (1, 0));
    }

    /// Rules of a statement that occupies the only slot.
    fn over_in_a_slot(stuck: &Stuck, slots: &Arc<Semaphore>) -> Rules {
        let permit = Arc::clone(slots).try_acquire_owned().unwrap();
        Rules {
            stuck: stuck.clone(),
            slot: RunSlot::new(permit),
            ..over(Duration::ZERO)
        }
    }

    #[test]
    fn a_stuck_statement_gives_its_run_slot_to_the_next() {
        let slots = Arc::new(Semaphore::new(1));
        let rules = over_in_a_slot(&Stuck::default(), &slots);
        let (interrupt, interrupts) = channel();
        let interrupt = move || interrupt.send(()).unwrap();
        assert_eq!(slots.available_permits(), 0);
        let (free, _) = Watch::default().during(&rules, &interrupt, || {
            interrupts.recv().unwrap();
            interrupts.recv().unwrap();
            slots.available_permits()
        });
        assert_eq!(free, 1);
    }

    #[test]
    fn stuck_statements_beyond_the_spare_connections_keep_their_run_slots() {
        let slots = Arc::new(Semaphore::new(1));
        let stuck = Stuck::default();
        let _others = [stuck.one(), stuck.one()];
        assert_eq!(stuck.count(), u64::from(SPARE_CONNECTIONS));
        let rules = over_in_a_slot(&stuck, &slots);
        let (interrupt, interrupts) = channel();
        let interrupt = move || interrupt.send(()).unwrap();
        let (free, _) = Watch::default().during(&rules, &interrupt, || {
            interrupts.recv().unwrap();
            interrupts.recv().unwrap();
            slots.available_permits()
        });
        assert_eq!(free, 0);
        drop(rules);
        assert_eq!(slots.available_permits(), 1, "until it has ended");
    }

    #[test]
    fn a_stopped_and_abandoned_statement_is_interrupted_with_pauses() {
        let rules = over(Duration::from_secs(5));
        let watch = Arc::new(Watch::default());
        let abandon = AbandonOnDrop::new(&watch);
        let (interrupt, interrupts) = channel();
        let interrupt = move || interrupt.send(()).unwrap();
        let (next, stop) = watch.during(&rules, &interrupt, || {
            interrupts.recv().unwrap();
            drop(abandon);
            interrupts.recv_timeout(INTERRUPT_EVERY / 2)
        });
        assert_eq!(next, Err(RecvTimeoutError::Timeout));
        assert_eq!(stop, Some(Stop::Deadline));
    }
}
