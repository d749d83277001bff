//! JSON Web Key Sets of token issuers: fetched at startup, every ten minutes, and when a token
//! names an unknown key. Fetched keys stay valid for a day while fetches fail.

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

/// Time between two fetches while they succeed.
const REFRESH: Duration = Duration::from_mins(10);

/// Minimum time between two fetches from one issuer, also after failures and for unknown keys.
const MIN_INTERVAL: Duration = Duration::from_mins(1);

/// Time after which keys expire that no fetch has confirmed. Older tokens have expired by then,
/// unless `max_age` allows more, and an attacker with a withdrawn key cannot keep it valid by
/// blocking the issuer.
const MAX_AGE: Duration = Duration::from_hours(24);

/// Background task that keeps the key sets fresh.
#[derive(Debug)]
pub(super) struct JwksRefresher {
    sets: JwksCache,
    access: watch::Receiver<Arc<Access>>,
    base_dir: PathBuf,
    limits: Limits,
    schedules: BTreeMap<KeySource, FetchSchedule>,
}

/// State of the fetches from one issuer.
#[derive(Debug, Default)]
struct FetchSchedule {
    last_attempt: Option<Instant>,
    last_success: Option<Instant>,
    is_failing: bool,
    is_running: bool,
}

impl FetchSchedule {
    /// Time of the next fetch; `None` before the first attempt.
    fn due(&self, is_requested: bool) -> Option<Instant> {
        let pause = if is_requested || self.is_failing {
            MIN_INTERVAL
        } else {
            REFRESH
        };
        self.last_attempt.map(|last_attempt| last_attempt + pause)
    }
}

type FetchResult = (KeySource, Result<KeySet, FetchError>);

impl JwksRefresher {
    /// Refreshes `sets` with the keys of the issuers in `access`, whose paths are relative to
    /// `base_dir`.
    pub(super) fn new(
        sets: JwksCache,
        access: watch::Receiver<Arc<Access>>,
        base_dir: PathBuf,
    ) -> Self {
        Self {
            sets,
            access,
            base_dir,
            limits: Limits::default(),
            schedules: BTreeMap::new(),
        }
    }

    /// Runs until `stopping` turns true.
    pub(super) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut running = JoinSet::new();
        loop {
            let next = self.start_due(&mut running);
            tokio::select! {
                () = sleep_until(next) => {}
                Some(ended) = running.join_next() => {
                    // `fetch_in_background` turns a panic into an error, so the join always
                    // succeeds.
                    if let Ok((source, fetched)) = ended {
                        self.record(&source, fetched);
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

    /// Starts the fetches that are due and returns the time of the next one.
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's time, which tests can pause"
    )]
    fn start_due(&mut self, running: &mut JoinSet<FetchResult>) -> Instant {
        let now = Instant::now();
        let access = Arc::clone(&self.access.borrow_and_update());
        let sources: BTreeSet<KeySource> = access.key_sources().cloned().collect();
        self.sets.retain_sources(&sources);
        self.schedules.retain(|source, _| sources.contains(source));
        let mut next = now + REFRESH;
        for source in sources {
            let schedule = self.schedules.entry(source.clone()).or_default();
            if schedule
                .last_success
                .is_some_and(|last_success| last_success + MAX_AGE <= now)
            {
                schedule.last_success = None;
                self.sets.remove(&source);
                warn!(
                    issuer = source.issuer,
                    "keys of issuer {} expired: no fetch has succeeded for a day", source.issuer
                );
            }
            let due = schedule.due(self.sets.needs_refresh(&source));
            match due.filter(|due| *due > now) {
                _ if schedule.is_running => {}
                Some(due) => next = next.min(due),
                None => {
                    schedule.is_running = true;
                    schedule.last_attempt = Some(now);
                    running.spawn(fetch_in_background(
                        source,
                        self.base_dir.clone(),
                        self.limits,
                    ));
                }
            }
        }
        next
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's time, which tests can pause"
    )]
    fn record(&mut self, source: &KeySource, fetched: Result<KeySet, FetchError>) {
        // The issuer may have been removed from the file in the meantime.
        let Some(schedule) = self.schedules.get_mut(source) else {
            return;
        };
        schedule.is_running = false;
        schedule.is_failing = fetched.is_err();
        let (issuer, url) = (&source.issuer, source.url.as_str());
        match fetched {
            Ok(keys) => {
                schedule.last_success = Some(Instant::now());
                if self.sets.succeeded(source, keys) {
                    info!(
                        issuer,
                        url, "fetching keys of issuer {issuer} succeeds again"
                    );
                }
            }
            // Only the first failure in a row is logged; all are counted.
            Err(failure) => {
                if self.sets.failed(source) {
                    warn!(
                        issuer,
                        url,
                        error = chain(&failure),
                        "cannot fetch keys of issuer {issuer}; retrying every minute, known keys stay valid for a day"
                    );
                }
            }
        }
    }
}

/// Fetches on a blocking thread.
async fn fetch_in_background(source: KeySource, base_dir: PathBuf, limits: Limits) -> FetchResult {
    let key_source = source.clone();
    let keys = spawn_blocking(move || fetch(&key_source, &base_dir, limits)).await;
    (source, keys.unwrap_or_else(|defect| Err(defect.into())))
}

#[cfg(test)]
mod tests;
