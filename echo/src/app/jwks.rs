//! Keeps the keys of issuers that publish them: fetched at the start, every ten minutes, and when a token names a key that is
//! not known. What was fetched stays in force while fetching fails, for a day.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use echo_access::Access;
use echo_access::published::{KeySet, KeySource};
use echo_core::error::chain;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::app::jwks::fetch::{FetchError, Limits, fetch};
use echo_serve::jwks::JwksCache;

mod fetch;

/// Time between two fetches while all goes well.
const REFRESH: Duration = Duration::from_mins(10);

/// Shortest time between two fetches from one issuer, whatever fails and whoever wishes.
const AGAIN: Duration = Duration::from_mins(1);

/// How long keys count that are not confirmed. Tokens from before have ended by then, unless `max_age` allows more, and
/// whoever has a withdrawn key cannot keep it in force by keeping the issuer away.
const MAX_AGE: Duration = Duration::from_hours(24);

/// What keeps the keys.
#[derive(Debug)]
pub(super) struct Keeper {
    sets: JwksCache,
    access: watch::Receiver<Arc<Access>>,
    beside: PathBuf,
    limits: Limits,
    plans: BTreeMap<KeySource, Plan>,
}

/// When keys were tried for, and came.
#[derive(Debug, Default)]
struct Plan {
    tried: Option<Instant>,
    came: Option<Instant>,
    is_failing: bool,
    is_running: bool,
}

impl Plan {
    /// When to fetch next; nothing when that is overdue.
    fn due(&self, is_requested: bool) -> Option<Instant> {
        let pause = if is_requested || self.is_failing {
            AGAIN
        } else {
            REFRESH
        };
        self.tried.map(|tried| tried + pause)
    }
}

type Fetched = (KeySource, Result<KeySet, FetchError>);

impl Keeper {
    /// Keeps the keys of the issuers of `access` in `sets`. Paths in it are relative to `beside`.
    pub(super) fn new(
        sets: JwksCache,
        access: watch::Receiver<Arc<Access>>,
        beside: PathBuf,
    ) -> Self {
        Self {
            sets,
            access,
            beside,
            limits: Limits::default(),
            plans: BTreeMap::new(),
        }
    }

    /// Fetches until told to stop.
    pub(super) async fn keep(mut self, mut stopping: watch::Receiver<bool>) {
        let mut running = JoinSet::new();
        loop {
            let next = self.begin(&mut running);
            tokio::select! {
                () = sleep_until(next) => {}
                Some(ended) = running.join_next() => {
                    // A fetch passes on its own panic, so it ends in no other way.
                    if let Ok((source, fetched)) = ended {
                        self.take(&source, fetched);
                    }
                }
                changed = self.access.changed() => if changed.is_err() {
                    return;
                },
                () = self.sets.refresh_requested() => {}
                _stop = stopping.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Begins what is due. When something will be due again.
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's time, which tests can pause"
    )]
    fn begin(&mut self, running: &mut JoinSet<Fetched>) -> Instant {
        let now = Instant::now();
        let access = Arc::clone(&self.access.borrow_and_update());
        let sources: BTreeSet<KeySource> = access.key_sources().cloned().collect();
        self.sets.retain_sources(&sources);
        self.plans.retain(|source, _| sources.contains(source));
        let mut next = now + REFRESH;
        for source in sources {
            let plan = self.plans.entry(source.clone()).or_default();
            if plan.came.is_some_and(|came| came + MAX_AGE <= now) {
                plan.came = None;
                self.sets.remove(&source);
                warn!(
                    issuer = source.issuer,
                    "the keys of {} were not confirmed for a day and no longer count",
                    source.issuer
                );
            }
            let due = plan.due(self.sets.needs_refresh(&source));
            match due.filter(|due| *due > now) {
                _ if plan.is_running => {}
                Some(due) => next = next.min(due),
                None => {
                    plan.is_running = true;
                    plan.tried = Some(now);
                    running.spawn(fetched(source, self.beside.clone(), self.limits));
                }
            }
        }
        next
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's time, which tests can pause"
    )]
    fn take(&mut self, source: &KeySource, fetched: Result<KeySet, FetchError>) {
        // The issuer may have gone from the file meanwhile.
        let Some(plan) = self.plans.get_mut(source) else {
            return;
        };
        plan.is_running = false;
        plan.is_failing = fetched.is_err();
        let (issuer, url) = (&source.issuer, source.url.as_str());
        match fetched {
            Ok(keys) => {
                plan.came = Some(Instant::now());
                if self.sets.succeeded(source, keys) {
                    info!(issuer, url, "the keys of {issuer} can be fetched again");
                }
            }
            // The first of a row is news, the others are counted.
            Err(failure) => {
                if self.sets.failed(source) {
                    warn!(
                        issuer,
                        url,
                        error = chain(&failure),
                        "the keys of {issuer} cannot be fetched; those fetched before count for a day, and Echo tries again each minute"
                    );
                }
            }
        }
    }
}

/// Fetches where it holds up nobody.
async fn fetched(source: KeySource, beside: PathBuf, limits: Limits) -> Fetched {
    let of = source.clone();
    let keys = spawn_blocking(move || fetch(&of, &beside, limits)).await;
    (source, keys.unwrap_or_else(|defect| Err(defect.into())))
}

#[cfg(test)]
mod tests;
