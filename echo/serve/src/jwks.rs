//! Keys that issuers publish, as they are known at this moment: what was fetched, what is wished for, and how fetching goes.
//!
//! Nobody waits for keys. A token whose key is not known is refused at once, and wishes that its issuer is asked again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use echo_access::published::{KeySet, KeySource, Published};
use echo_store::timings::Stopwatch;
use tokio::sync::Notify;

/// What is known. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct KeySets(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<Known>,
    wished: Notify,
}

#[derive(Debug, Default)]
struct Known {
    published: Arc<Published>,
    sources: BTreeMap<KeySource, Fetches>,
}

/// How fetching from one issuer goes.
#[derive(Debug, Clone, Default)]
pub struct Fetches {
    /// Times that its keys came.
    pub succeeded: u64,
    /// Times that they did not.
    pub failed: u64,
    is_failing: bool,
    is_wished: bool,
    came: Option<Stopwatch>,
}

impl Fetches {
    /// Time since its keys came.
    pub fn age(&self) -> Option<Duration> {
        self.came.map(Stopwatch::elapsed)
    }
}

#[expect(
    clippy::significant_drop_tightening,
    reason = "what is looked at and changed lies behind the lock"
)]
impl KeySets {
    /// The keys.
    pub fn published(&self) -> Arc<Published> {
        Arc::clone(&self.known().published)
    }

    /// Asks for the keys of an issuer before it is time.
    pub fn wish(&self, source: &KeySource) {
        let mut known = self.known();
        let fetches = known.sources.get_mut(source);
        if fetches.is_some_and(|fetches| !std::mem::replace(&mut fetches.is_wished, true)) {
            self.0.wished.notify_one();
        }
    }

    /// Waits until the keys of some issuer are wished for.
    pub async fn wished(&self) {
        self.0.wished.notified().await;
    }

    /// Whether the keys of this issuer are.
    pub fn is_wished(&self, source: &KeySource) -> bool {
        let known = self.known();
        let fetches = known.sources.get(source);
        fetches.is_some_and(|fetches| fetches.is_wished)
    }

    /// Knows these issuers and no others.
    pub fn keep_only(&self, sources: &BTreeSet<KeySource>) {
        let mut known = self.known();
        let is_kept = |source: &KeySource| sources.contains(source);
        known.sources.retain(|source, _| is_kept(source));
        for source in sources {
            known.sources.entry(source.clone()).or_default();
        }
        Arc::make_mut(&mut known.published).retain(is_kept);
    }

    /// Takes over what came. Whether it had failed the last time.
    pub fn succeeded(&self, source: &KeySource, keys: KeySet) -> bool {
        let mut known = self.known();
        let Some(fetches) = known.sources.get_mut(source) else {
            return false;
        };
        fetches.succeeded += 1;
        fetches.is_wished = false;
        fetches.came = Some(Stopwatch::start());
        let was_failing = std::mem::take(&mut fetches.is_failing);
        Arc::make_mut(&mut known.published).insert(source.clone(), keys);
        was_failing
    }

    /// Counts that nothing came that could be used. Whether that is new.
    pub fn failed(&self, source: &KeySource) -> bool {
        let mut known = self.known();
        let Some(fetches) = known.sources.get_mut(source) else {
            return false;
        };
        fetches.failed += 1;
        fetches.is_wished = false;
        !std::mem::replace(&mut fetches.is_failing, true)
    }

    /// Forgets what an issuer published.
    pub fn forget(&self, source: &KeySource) {
        let mut known = self.known();
        Arc::make_mut(&mut known.published).retain(|other| other != source);
    }

    /// How it goes, by issuer.
    pub fn counts(&self) -> BTreeMap<String, Fetches> {
        let known = self.known();
        let sources = known.sources.iter();
        sources
            .map(|(source, fetches)| (source.issuer.clone(), fetches.clone()))
            .collect()
    }

    // Nothing that holds this lock can panic.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
