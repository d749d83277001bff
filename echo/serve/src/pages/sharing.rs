//! Pages and lag maps that viewers share. Those of thousands of ranks take seconds, and open pages reload: each is made
//! once for all who ask for it meanwhile or soon afterwards.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use echo_core::clock::Clock;
use echo_core::units::Nanos;
use echo_tools::ToolError;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Time for which a value is current, as a multiple of the time that it took: viewers together use at most a fifth of
/// the time for it, and what is made at once is made for each.
const CURRENT_TIMES: f64 = 5.0;

/// Longest time for which a value is current, milliseconds.
const MAX_CURRENT_MS: f64 = 15_000.0;

/// What a viewer can see of a value within a time.
#[derive(Debug, Clone)]
pub(super) enum Shared<V> {
    /// A current value.
    Current(Arc<V>),
    /// An earlier one, while a new one is being made.
    Earlier(Arc<V>),
    /// None yet: the first one is being made.
    Begun,
    /// Making it failed.
    Failed(Arc<ToolError>),
}

/// Values by what they show. Clones share them.
#[derive(Debug)]
pub(super) struct Sharing<K, V> {
    kept: Arc<Mutex<HashMap<K, Kept<V>>>>,
    /// Tasks that make values. Each ends at the deadline of a query.
    makers: Arc<Mutex<JoinSet<()>>>,
    clock: Arc<dyn Clock>,
    /// Time after its last viewer for which a value is kept although it is not current any more, milliseconds.
    kept_ms: f64,
}

/// Result of making a value, once it is there.
type Outcome<V> = watch::Receiver<Option<Result<Arc<V>, Arc<ToolError>>>>;

#[derive(Debug)]
struct Kept<V> {
    latest: Option<Made<V>>,
    making: Option<Outcome<V>>,
    viewed: Nanos,
}

#[derive(Debug)]
struct Made<V> {
    begun: Nanos,
    current_ms: f64,
    value: Arc<V>,
}

impl<V> Made<V> {
    fn is_current(&self, now: Nanos) -> bool {
        // A clock that was set back makes nothing current for longer.
        (0.0..self.current_ms).contains(&now.millis_since(self.begun))
    }
}

impl<V> Kept<V> {
    /// Returns the outcome of the task that makes a value. That of a task that was ended has no sender any more.
    fn making(&self) -> Option<&Outcome<V>> {
        let making = self.making.as_ref();
        making.filter(|making| making.has_changed().is_ok())
    }

    fn is_current(&self, now: Nanos) -> bool {
        self.latest
            .as_ref()
            .is_some_and(|made| made.is_current(now))
    }
}

impl<K, V> Clone for Sharing<K, V> {
    fn clone(&self) -> Self {
        Self {
            kept: Arc::clone(&self.kept),
            makers: Arc::clone(&self.makers),
            clock: Arc::clone(&self.clock),
            kept_ms: self.kept_ms,
        }
    }
}

impl<K, V> Sharing<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Send + Sync + 'static,
{
    /// Shares values while they are current, and keeps the latest for this time after its last viewer.
    pub(super) fn new(clock: Arc<dyn Clock>, kept: Duration) -> Self {
        Self {
            kept: Arc::default(),
            makers: Arc::default(),
            clock,
            kept_ms: kept.as_secs_f64() * 1e3,
        }
    }

    /// Returns a value. `make` makes one if none that is current and `fits` is there, and none is being made.
    pub(super) async fn get<F>(
        &self,
        key: K,
        fits: impl Fn(&V) -> bool,
        make: impl FnOnce() -> F,
    ) -> Result<Arc<V>, Arc<ToolError>>
    where
        F: Future<Output = Result<V, ToolError>> + Send + 'static,
    {
        match self.current_or_begun(key, fits, make) {
            Ok(value) => Ok(value),
            Err(outcome) => made(outcome).await,
        }
    }

    /// Returns what is there of a value after up to `patience`. Its making goes on when its viewer has left.
    pub(super) async fn get_within<F>(
        &self,
        key: K,
        fits: impl Fn(&V) -> bool,
        patience: Duration,
        make: impl FnOnce() -> F,
    ) -> Shared<V>
    where
        F: Future<Output = Result<V, ToolError>> + Send + 'static,
    {
        let outcome = match self.current_or_begun(key.clone(), fits, make) {
            Ok(value) => return Shared::Current(value),
            Err(outcome) => outcome,
        };
        match tokio::time::timeout(patience, made(outcome)).await {
            Ok(Ok(value)) => Shared::Current(value),
            Ok(Err(error)) => Shared::Failed(error),
            Err(_elapsed) => self.latest(&key).map_or(Shared::Begun, Shared::Earlier),
        }
    }

    /// Returns a current value, or else the outcome of the task that makes one.
    fn current_or_begun<F>(
        &self,
        key: K,
        fits: impl Fn(&V) -> bool,
        make: impl FnOnce() -> F,
    ) -> Result<Arc<V>, Outcome<V>>
    where
        F: Future<Output = Result<V, ToolError>> + Send + 'static,
    {
        let now = self.clock.now();
        let mut all = self.all();
        all.retain(|_, kept| {
            let is_kept = now.millis_since(kept.viewed) < self.kept_ms;
            is_kept || kept.is_current(now) || kept.making().is_some()
        });
        let kept = all.entry(key.clone()).or_insert(Kept {
            latest: None,
            making: None,
            viewed: now,
        });
        kept.viewed = now;
        let latest = kept.latest.as_ref();
        if let Some(made) = latest.filter(|made| made.is_current(now) && fits(&made.value)) {
            return Ok(Arc::clone(&made.value));
        }
        if let Some(making) = kept.making() {
            return Err(making.clone());
        }
        let (announce, outcome) = watch::channel(None);
        kept.making = Some(outcome.clone());
        drop(all);
        self.spawn(key, announce, make());
        Err(outcome)
    }

    fn spawn(
        &self,
        key: K,
        announce: watch::Sender<Option<Result<Arc<V>, Arc<ToolError>>>>,
        making: impl Future<Output = Result<V, ToolError>> + Send + 'static,
    ) {
        let sharing = self.clone();
        let begun = self.clock.now();
        let mut makers = self.makers.lock().unwrap_or_else(PoisonError::into_inner);
        while makers.try_join_next().is_some() {}
        makers.spawn(async move {
            let made = making.await.map(Arc::new).map_err(Arc::new);
            if let Some(kept) = sharing.all().get_mut(&key) {
                kept.making = None;
                if let Ok(value) = &made {
                    let took_ms = sharing.clock.now().millis_since(begun);
                    kept.latest = Some(Made {
                        begun,
                        current_ms: (took_ms * CURRENT_TIMES).min(MAX_CURRENT_MS),
                        value: Arc::clone(value),
                    });
                }
            }
            announce.send_replace(Some(made));
        });
        drop(makers);
    }

    fn latest(&self, key: &K) -> Option<Arc<V>> {
        let all = self.all();
        let latest = all.get(key).and_then(|kept| kept.latest.as_ref());
        let value = latest.map(|made| Arc::clone(&made.value));
        drop(all);
        value
    }

    // No code that holds the lock can panic.
    fn all(&self) -> MutexGuard<'_, HashMap<K, Kept<V>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn made<V: Send + Sync>(mut outcome: Outcome<V>) -> Result<Arc<V>, Arc<ToolError>> {
    let ended = || Err(Arc::new(ToolError::Unfinished));
    match outcome.wait_for(Option::is_some).await {
        Ok(made) => made.clone().unwrap_or_else(ended),
        Err(_no_sender) => ended(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicU32, Ordering};

    use echo_core::clock::ManualClock;
    use tokio::sync::oneshot;

    use super::*;

    /// Values of which each is the number of those made before, and takes two seconds.
    struct Counted {
        clock: ManualClock,
        sharing: Sharing<&'static str, u32>,
        made: Arc<AtomicU32>,
    }

    fn at(second: i64) -> Nanos {
        Nanos::new(second * 1_000_000_000)
    }

    fn sharing(clock: &ManualClock) -> Sharing<&'static str, u32> {
        Sharing::new(Arc::new(clock.clone()), Duration::from_mins(10))
    }

    impl Counted {
        fn new() -> Self {
            let clock = ManualClock::at(at(0));
            Self {
                sharing: sharing(&clock),
                clock,
                made: Arc::default(),
            }
        }

        async fn view(&self, key: &'static str, fits: impl Fn(&u32) -> bool) -> u32 {
            let (made, clock) = (Arc::clone(&self.made), self.clock.clone());
            let make = || async move {
                let begun = clock.now();
                tokio::task::yield_now().await;
                clock.set(begun.offset(2_000_000_000));
                Ok(made.fetch_add(1, Ordering::Relaxed))
            };
            *self.sharing.get(key, fits, make).await.unwrap()
        }
    }

    #[tokio::test]
    async fn viewers_who_ask_for_the_same_meanwhile_or_soon_afterwards_get_one_value() {
        let values = Counted::new();
        let together = tokio::join!(values.view("a", |_| true), values.view("a", |_| true));
        assert_eq!(together, (0, 0));
        // Begun at 0 and made in two seconds: current for ten.
        values.clock.set(at(9));
        assert_eq!(values.view("a", |_| true).await, 0);
        values.clock.set(at(10));
        assert_eq!(values.view("a", |_| true).await, 1);
        assert_eq!(values.view("b", |_| true).await, 2);
    }

    #[tokio::test]
    async fn a_current_value_that_does_not_fit_is_made_again() {
        let values = Counted::new();
        assert_eq!(values.view("a", |_| true).await, 0);
        assert_eq!(values.view("a", |value| *value > 0).await, 1);
        assert_eq!(values.view("a", |_| true).await, 1);
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_makes_no_value_current_for_longer() {
        let values = Counted::new();
        values.clock.set(at(3_600));
        assert_eq!(values.view("a", |_| true).await, 0);
        values.clock.set(at(10));
        assert_eq!(values.view("a", |_| true).await, 1);
    }

    #[tokio::test]
    async fn what_takes_no_time_is_made_for_each_viewer() {
        let shared = sharing(&ManualClock::at(at(0)));
        for nth in 0..3 {
            let made = shared.get("a", |_| true, || async move { Ok(nth) }).await;
            assert_eq!(*made.unwrap(), nth);
        }
    }

    #[tokio::test]
    async fn what_fails_or_was_ended_is_made_by_the_next_viewer() {
        let shared = sharing(&ManualClock::at(at(0)));
        let failing = || async { Err(ToolError::invalid("window", "is too short")) };
        let failed = shared.get("a", |_| true, failing).await;
        assert!(failed.unwrap_err().to_string().contains("too short"));
        let begun = shared.get_within("a", |_| true, Duration::ZERO, pending::<Result<u32, _>>);
        assert!(matches!(begun.await, Shared::Begun));
        let mut makers = std::mem::take(&mut *shared.makers.lock().unwrap());
        makers.shutdown().await;
        let made = shared.get("a", |_| true, || async { Ok(7) }).await;
        assert_eq!(*made.unwrap(), 7);
    }

    #[tokio::test]
    async fn who_does_not_wait_sees_the_value_before_while_a_new_one_is_made() {
        let values = Counted::new();
        let (clock, shared) = (&values.clock, &values.sharing);
        let (go_on, gone_on) = oneshot::channel();
        let make = || async move {
            let _told = gone_on.await;
            Ok(1)
        };
        let passing = |second: i64| {
            clock.set(at(second));
            shared.get_within("a", |_| true, Duration::ZERO, pending)
        };
        let none = shared.get_within("a", |_| true, Duration::ZERO, make);
        assert!(matches!(none.await, Shared::Begun));
        // Its maker goes on without a viewer.
        go_on.send(()).unwrap();
        let made = shared.get("a", |_| true, pending).await.unwrap();
        assert!(matches!(passing(60).await, Shared::Earlier(value) if Arc::ptr_eq(&value, &made)));
        let mut makers = std::mem::take(&mut *shared.makers.lock().unwrap());
        makers.shutdown().await;
        // Forgotten ten minutes after its last viewer.
        assert!(matches!(passing(661).await, Shared::Begun));
    }
}
