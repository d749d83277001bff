//! Cache of the keys that issuers publish, with refresh requests and fetch statistics.
//!
//! Requests never wait for keys. A token with an unknown key is rejected at once, and requests a
//! refresh of its issuer's keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use echo_access::published::{KeySet, KeySource, PublishedKeys};
use echo_store::timings::Stopwatch;
use tokio::sync::Notify;

/// Fetched keys. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct JwksCache(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    refresh_requested: Notify,
}

#[derive(Debug, Default)]
struct State {
    published: Arc<PublishedKeys>,
    sources: BTreeMap<KeySource, FetchStatus>,
}

/// Fetch statistics of one issuer.
#[derive(Debug, Clone, Default)]
pub struct FetchStatus {
    /// Successful fetches.
    pub succeeded: u64,
    /// Failed fetches.
    pub failed: u64,
    is_failing: bool,
    needs_refresh: bool,
    last_success: Option<Stopwatch>,
}

impl FetchStatus {
    /// Returns the time since the last successful fetch.
    pub fn age(&self) -> Option<Duration> {
        self.last_success.map(Stopwatch::elapsed)
    }
}

#[expect(
    clippy::significant_drop_tightening,
    reason = "the state that is read and changed is behind the lock"
)]
impl JwksCache {
    /// Returns the keys.
    pub fn published(&self) -> Arc<PublishedKeys> {
        Arc::clone(&self.state().published)
    }

    /// Requests a refresh of an issuer's keys before it is due.
    pub fn request_refresh(&self, source: &KeySource) {
        let mut state = self.state();
        let fetches = state.sources.get_mut(source);
        if fetches.is_some_and(|fetches| !std::mem::replace(&mut fetches.needs_refresh, true)) {
            self.0.refresh_requested.notify_one();
        }
    }

    /// Waits until the refresh of some issuer's keys is requested.
    pub async fn refresh_requested(&self) {
        self.0.refresh_requested.notified().await;
    }

    /// Returns whether a refresh of this issuer's keys is requested.
    pub fn needs_refresh(&self, source: &KeySource) -> bool {
        let state = self.state();
        let fetches = state.sources.get(source);
        fetches.is_some_and(|fetches| fetches.needs_refresh)
    }

    /// Adds these issuers and removes all others.
    pub fn retain_sources(&self, sources: &BTreeSet<KeySource>) {
        let mut state = self.state();
        let is_kept = |source: &KeySource| sources.contains(source);
        state.sources.retain(|source, _| is_kept(source));
        for source in sources {
            state.sources.entry(source.clone()).or_default();
        }
        Arc::make_mut(&mut state.published).retain(is_kept);
    }

    /// Stores fetched keys. Returns whether the previous fetch had failed.
    pub fn succeeded(&self, source: &KeySource, keys: KeySet) -> bool {
        let mut state = self.state();
        let Some(fetches) = state.sources.get_mut(source) else {
            return false;
        };
        fetches.succeeded += 1;
        fetches.needs_refresh = false;
        fetches.last_success = Some(Stopwatch::start());
        let was_failing = std::mem::take(&mut fetches.is_failing);
        Arc::make_mut(&mut state.published).insert(source.clone(), keys);
        was_failing
    }

    /// Counts a failed fetch. Returns whether it is the first failure since a success.
    pub fn failed(&self, source: &KeySource) -> bool {
        let mut state = self.state();
        let Some(fetches) = state.sources.get_mut(source) else {
            return false;
        };
        fetches.failed += 1;
        fetches.needs_refresh = false;
        !std::mem::replace(&mut fetches.is_failing, true)
    }

    /// Removes the keys of an issuer.
    pub fn remove(&self, source: &KeySource) {
        let mut state = self.state();
        Arc::make_mut(&mut state.published).retain(|other| other != source);
    }

    /// Returns the statistics by issuer.
    pub fn counts(&self) -> BTreeMap<String, FetchStatus> {
        let state = self.state();
        let sources = state.sources.iter();
        sources
            .map(|(source, fetches)| (source.issuer.clone(), fetches.clone()))
            .collect()
    }

    // No code panics while it holds this lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
