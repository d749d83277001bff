//! Lag maps that viewers share. A map of thousands of ranks takes seconds, and open pages reload: a page waits only a
//! moment for a new one, and shows the one before meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use echo_core::units::Nanos;
use echo_tools::ToolError;
use echo_tools::lag_map::{LagMap, RankKey};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::window_query::WindowQuery;

/// Time after its beginning for which a map is current, milliseconds.
const CURRENT_MS: f64 = 15_000.0;

/// Time after its last viewer for which a map is kept, milliseconds.
const KEPT_MS: f64 = 600_000.0;

/// Part of a cluster that a map shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub(super) cluster: String,
    pub(super) window: WindowQuery,
}

/// What a page can show of a part.
#[derive(Debug, Clone)]
pub(super) enum Shared {
    /// A map of the last seconds.
    Current(Arc<LagMap>),
    /// An earlier one, while a new one is being made.
    Earlier(Arc<LagMap>),
    /// None yet: the first one is being made.
    Begun,
    /// Making it failed, with this message.
    Failed(String),
}

/// Maps by what they show. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedMaps {
    kept: Arc<Mutex<HashMap<Part, Kept>>>,
    /// Tasks that make maps. Each ends at the deadline of a query.
    makers: Arc<Mutex<JoinSet<()>>>,
}

/// Result of making a map, once it is there.
type Outcome = watch::Receiver<Option<Result<Arc<LagMap>, String>>>;

#[derive(Debug, Default)]
struct Kept {
    latest: Option<Made>,
    making: Option<Outcome>,
    viewed: Nanos,
}

#[derive(Debug)]
struct Made {
    begun: Nanos,
    /// Ranks that it lists in any case.
    priority_ranks: Vec<RankKey>,
    map: Arc<LagMap>,
}

impl SharedMaps {
    /// Returns a map that lists these ranks in any case, and waits for it up to `patience`. `make` makes one if
    /// no current one is there or being made; it goes on when its viewer has left.
    pub(super) async fn get<F>(
        &self,
        part: Part,
        priority_ranks: Vec<RankKey>,
        (now, patience): (Nanos, Duration),
        make: impl FnOnce(Vec<RankKey>) -> F,
    ) -> Shared
    where
        F: Future<Output = Result<LagMap, ToolError>> + Send + 'static,
    {
        let mut outcome = match self.begun(&part, &priority_ranks, now) {
            Ok(map) => return Shared::Current(map),
            Err(Some(making)) => making,
            Err(None) => self.begin(part.clone(), priority_ranks, now, make),
        };
        let made = async { outcome.wait_for(Option::is_some).await.ok()?.clone() };
        match tokio::time::timeout(patience, made).await {
            Ok(Some(Ok(map))) => Shared::Current(map),
            Ok(Some(Err(message))) => Shared::Failed(message),
            Ok(None) => Shared::Failed("it could not be made".to_owned()),
            Err(_elapsed) => self.earlier(&part).map_or(Shared::Begun, Shared::Earlier),
        }
    }

    /// Returns a current map, or else the one that is being made.
    fn begun(
        &self,
        part: &Part,
        priority_ranks: &[RankKey],
        now: Nanos,
    ) -> Result<Arc<LagMap>, Option<Outcome>> {
        let is_current = |made: &&Made| {
            made.priority_ranks == priority_ranks && now.millis_since(made.begun) < CURRENT_MS
        };
        let mut all = self.all();
        all.retain(|_, kept| now.millis_since(kept.viewed) < KEPT_MS);
        let kept = all.entry(part.clone()).or_default();
        kept.viewed = now;
        let current = kept.latest.as_ref().filter(is_current);
        let current = current.map(|made| Arc::clone(&made.map));
        // That of a task that was ended has no sender any more.
        let making = kept
            .making
            .clone()
            .filter(|making| making.has_changed().is_ok());
        drop(all);
        current.ok_or(making)
    }

    fn begin<F>(
        &self,
        part: Part,
        priority_ranks: Vec<RankKey>,
        begun: Nanos,
        make: impl FnOnce(Vec<RankKey>) -> F,
    ) -> Outcome
    where
        F: Future<Output = Result<LagMap, ToolError>> + Send + 'static,
    {
        let (announce, outcome) = watch::channel(None);
        if let Some(kept) = self.all().get_mut(&part) {
            kept.making = Some(outcome.clone());
        }
        let making = make(priority_ranks.clone());
        let maps = self.clone();
        let mut makers = self.makers.lock().unwrap_or_else(PoisonError::into_inner);
        while makers.try_join_next().is_some() {}
        makers.spawn(async move {
            let made = making
                .await
                .map(Arc::new)
                .map_err(|error| error.to_string());
            if let Some(kept) = maps.all().get_mut(&part) {
                kept.making = None;
                if let Ok(map) = &made {
                    kept.latest = Some(Made {
                        begun,
                        priority_ranks,
                        map: Arc::clone(map),
                    });
                }
            }
            announce.send_replace(Some(made));
        });
        drop(makers);
        outcome
    }

    fn earlier(&self, part: &Part) -> Option<Arc<LagMap>> {
        let all = self.all();
        let latest = all.get(part).and_then(|kept| kept.latest.as_ref());
        let map = latest.map(|made| Arc::clone(&made.map));
        drop(all);
        map
    }

    // No code that holds the lock can panic.
    fn all(&self) -> MutexGuard<'_, HashMap<Part, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::future::pending;
    use std::sync::atomic::{AtomicU32, Ordering};

    use echo_core::units::Window;
    use tokio::sync::oneshot;

    use super::*;

    fn map() -> LagMap {
        LagMap {
            window: Window::new(Nanos::new(0), Nanos::new(1)).unwrap().into(),
            bucket_s: 1.0,
            sampled_s: 1.0,
            ranks: Vec::new(),
            n_omitted: 0,
            omitted_peak_ms: None,
            iteration_ms: BTreeMap::new(),
            effect_gate: 0.0,
        }
    }

    fn part(cluster: &str) -> Part {
        Part {
            cluster: cluster.to_owned(),
            window: WindowQuery::last_hour(),
        }
    }

    fn at(second: i64) -> (Nanos, Duration) {
        (Nanos::new(second * 1_000_000_000), Duration::from_hours(1))
    }

    /// Instant of a viewer who does not wait.
    fn passing(second: i64) -> (Nanos, Duration) {
        (at(second).0, Duration::ZERO)
    }

    fn current(shared: Shared) -> Arc<LagMap> {
        match shared {
            Shared::Current(map) => map,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn viewers_who_ask_for_the_same_within_seconds_wait_for_one_map() {
        let (maps, made) = (SharedMaps::default(), Arc::new(AtomicU32::new(0)));
        let view = |cluster: &str, ranks: Vec<RankKey>, second: i64| {
            let made = Arc::clone(&made);
            let make = |_| async move {
                tokio::task::yield_now().await;
                made.fetch_add(1, Ordering::Relaxed);
                Ok(map())
            };
            maps.get(part(cluster), ranks, at(second), make)
        };
        let (one, other) = tokio::join!(view("a", vec![], 100), view("a", vec![], 101));
        assert!(Arc::ptr_eq(&current(one), &current(other)));
        current(view("a", vec![], 114).await);
        assert_eq!(made.load(Ordering::Relaxed), 1);
        current(view("b", vec![], 114).await);
        current(view("a", vec![], 115).await);
        current(view("a", vec![(None, 3)], 115).await);
        assert_eq!(made.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn a_map_that_fails_is_made_by_the_next_viewer() {
        let maps = SharedMaps::default();
        let failing = |_| async { Err(ToolError::invalid("window", "is too short")) };
        let failed = maps.get(part("a"), vec![], at(0), failing).await;
        assert!(matches!(failed, Shared::Failed(why) if why.contains("too short")));
        let made = maps.get(part("a"), vec![], at(1), |_| async { Ok(map()) });
        current(made.await);
    }

    #[tokio::test]
    async fn who_does_not_wait_sees_the_map_before_while_a_new_one_is_made() {
        let maps = SharedMaps::default();
        let (go_on, gone_on) = oneshot::channel();
        let make = |_| async move {
            let _told = gone_on.await;
            Ok(map())
        };
        let none = maps.get(part("a"), vec![], passing(0), make).await;
        assert!(matches!(none, Shared::Begun));
        // Its maker goes on without a viewer.
        go_on.send(()).unwrap();
        let made = current(maps.get(part("a"), vec![], at(1), |_| pending()).await);
        let earlier = maps.get(part("a"), vec![], passing(60), |_| pending());
        assert!(matches!(earlier.await, Shared::Earlier(map) if Arc::ptr_eq(&map, &made)));
        // Forgotten ten minutes after its last viewer.
        let later = maps.get(part("a"), vec![], passing(661), |_| pending());
        assert!(matches!(later.await, Shared::Begun));
    }
}
