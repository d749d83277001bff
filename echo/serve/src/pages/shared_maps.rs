//! Lag maps that viewers share. A map of thousands of ranks takes seconds, and open pages reload.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use echo_core::units::Nanos;
use echo_tools::ToolError;
use echo_tools::lag_map::{LagMap, RankKey};
use tokio::sync::OnceCell;

use super::window_query::WindowQuery;

/// Time after its beginning for which a map is shown, milliseconds.
const MAX_AGE_MS: f64 = 15_000.0;

/// What a map shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Shown {
    pub(super) cluster: String,
    pub(super) window: WindowQuery,
    /// Ranks that are listed in any case.
    pub(super) priority_ranks: Vec<RankKey>,
}

/// A map, or one that is being made, and when that began.
type Begun = (Nanos, Arc<OnceCell<Arc<LagMap>>>);

/// Maps of the last seconds. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedMaps(Arc<Mutex<HashMap<Shown, Begun>>>);

impl SharedMaps {
    /// Returns a recent map, or the one that `make` returns. Callers who ask for the same wait for one
    /// map; if it fails, or its maker leaves, the next of them makes it.
    pub(super) async fn get(
        &self,
        shown: Shown,
        now: Nanos,
        make: impl Future<Output = Result<LagMap, ToolError>>,
    ) -> Result<Arc<LagMap>, ToolError> {
        let map = self.begun(shown, now);
        let made = map.get_or_try_init(|| async { make.await.map(Arc::new) });
        made.await.cloned()
    }

    fn begun(&self, shown: Shown, now: Nanos) -> Arc<OnceCell<Arc<LagMap>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (begun, _)| now.millis_since(*begun).abs() < MAX_AGE_MS);
        let map = Arc::clone(&all.entry(shown).or_insert_with(|| (now, Arc::default())).1);
        drop(all);
        map
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU32, Ordering};

    use echo_core::units::Window;

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

    fn shown(cluster: &str) -> Shown {
        Shown {
            cluster: cluster.to_owned(),
            window: WindowQuery::last_hour(),
            priority_ranks: Vec::new(),
        }
    }

    #[tokio::test]
    async fn viewers_who_ask_for_the_same_within_seconds_wait_for_one_map() {
        let (maps, made) = (SharedMaps::default(), AtomicU32::new(0));
        let view = |cluster: &str, second: i64| {
            let make = async {
                tokio::task::yield_now().await;
                made.fetch_add(1, Ordering::Relaxed);
                Ok(map())
            };
            maps.get(shown(cluster), Nanos::new(second * 1_000_000_000), make)
        };
        let (one, other) = tokio::join!(view("a", 100), view("a", 101));
        assert!(Arc::ptr_eq(&one.unwrap(), &other.unwrap()));
        view("a", 114).await.unwrap();
        assert_eq!(made.load(Ordering::Relaxed), 1);
        view("b", 114).await.unwrap();
        view("a", 115).await.unwrap();
        assert_eq!(made.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_map_that_fails_is_made_by_the_next_viewer() {
        let maps = SharedMaps::default();
        let failing = async { Err(ToolError::invalid("window", "is too short")) };
        let failed = maps.get(shown("a"), Nanos::new(0), failing).await;
        assert!(failed.is_err());
        let made = maps
            .get(shown("a"), Nanos::new(1), async { Ok(map()) })
            .await;
        assert!(made.is_ok());
    }
}
