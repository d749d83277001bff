//! Answers queries of an instance that receives events from its database (hot) and from the lake
//! (cold).
//!
//! A query that the database answers alone never touches the lake: it is about a cluster that no
//! other instance has sent events of, and about times from which nothing was deleted. All others
//! are answered by an engine of their own, which sees each row once ([`DuckDbStore::open_beside`]):
//! up to the last slice of this instance from the lake, and after it from the database. The engine
//! is opened by the first such query; where the lake cannot be read, the database answers, and
//! [`EventStore::reach`] says so.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use echo_core::clock::Clock;
use echo_core::error::chain;
use echo_core::ids::ClusterId;
use echo_core::units::Nanos;
use echo_store::duckdb::slices::SliceReader;
use echo_store::duckdb::{DuckDbConfig, DuckDbStore};
use echo_store::timings::Stopwatch;
use echo_store::{EventStore, StoreError};
use tempfile::TempDir;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::error::LakeError;
use crate::location::{Catalog, LakeConfig};
use crate::reader;

mod conclusions;
mod events;

/// Longest wait of a query for the lake: less than its deadline, so that the database can answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time after a failure in which the lake is not tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Longest time for which several parts of one answer use the same state of the lake.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// Store that answers from the database, and from the lake where the database does not suffice.
pub struct HotAndCold {
    own: Arc<DuckDbStore>,
    all: Arc<Mutex<All>>,
    /// Clusters that other instances have sent events of, as far as is known.
    elsewhere: RwLock<BTreeSet<ClusterId>>,
    is_away: AtomicBool,
}

/// The engine that reads the lake.
struct All {
    lake: LakeConfig,
    config: DuckDbConfig,
    slices: SliceReader,
    clock: Arc<dyn Clock>,
    store: Option<Opened>,
    /// Time of the last refresh, and the number of the last event that was committed before it.
    refreshed: Option<(Stopwatch, u64)>,
    failed: Option<Stopwatch>,
}

struct Opened {
    store: Arc<DuckDbStore>,
    /// Removed after the store is closed.
    _folder: TempDir,
}

/// Cluster and first instant that a query is about.
type Part<'q> = (Option<&'q ClusterId>, Nanos);

/// Conclusions, which retention of events does not delete, are whole from any time on.
const NO_EVENTS: Nanos = Nanos::new(i64::MAX);

/// Everything that is stored.
const EVERYTHING: Part<'static> = (None, Nanos::EARLIEST);

impl fmt::Debug for HotAndCold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotAndCold").finish_non_exhaustive()
    }
}

impl HotAndCold {
    /// Store beside the one whose rows `slices` reads; `config` has the limits of the engine that
    /// reads the lake. `None` if the catalog is a file, which the committer has open.
    pub fn new(
        own: Arc<DuckDbStore>,
        slices: SliceReader,
        lake: LakeConfig,
        config: DuckDbConfig,
        clock: Arc<dyn Clock>,
    ) -> Option<Self> {
        if matches!(lake.catalog(), Ok(Catalog::File(_))) {
            return None;
        }
        Some(Self {
            own,
            all: Arc::new(Mutex::new(All {
                lake,
                config,
                slices,
                clock,
                store: None,
                refreshed: None,
                failed: None,
            })),
            elsewhere: RwLock::default(),
            is_away: AtomicBool::new(false),
        })
    }

    /// Closes the engine that reads the lake. The database stays open.
    pub async fn stop(&self) {
        let Ok(mut all) = timeout(PATIENCE, self.all.lock()).await else {
            return;
        };
        if let Some(opened) = all.store.take()
            && let Err(error) = opened.store.close().await
        {
            tracing::debug!(error = chain(&error), "the engine of the lake has failed");
        }
    }

    /// Returns whether the database has all that was ever received about a part.
    fn is_whole(&self, (cluster, from): Part<'_>) -> bool {
        let is_here = cluster.is_some_and(|cluster| !self.is_elsewhere(cluster));
        is_here && self.own.deleted_until() <= from
    }

    fn is_elsewhere(&self, cluster: &ClusterId) -> bool {
        let elsewhere = self.elsewhere.read();
        elsewhere
            .unwrap_or_else(PoisonError::into_inner)
            .contains(cluster)
    }

    /// Answers about a part.
    async fn ask<T, F>(
        &self,
        part: Part<'_>,
        question: impl Fn(Arc<DuckDbStore>) -> F + Send + Sync,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        if self.is_whole(part) && self.is_own(part.0).await? {
            let answer = question(Arc::clone(&self.own)).await;
            // Retention records what it deletes before it does.
            if self.is_whole(part) {
                return answer;
            }
        }
        if let Some(all) = self.all().await {
            match question(all).await {
                Err(error @ StoreError::Engine { .. }) => self.report_away(&error),
                answer => return answer,
            }
        }
        question(Arc::clone(&self.own)).await
    }

    async fn is_own(&self, cluster: Option<&ClusterId>) -> Result<bool, StoreError> {
        match cluster {
            Some(cluster) => self.own.has_cluster(cluster).await,
            None => Ok(false),
        }
    }

    /// Returns the store of all rows that are committed now; `None` if the lake cannot be read.
    async fn all(&self) -> Option<Arc<DuckDbStore>> {
        let refreshed = timeout(PATIENCE, self.refreshed()).await;
        let error = match refreshed {
            Ok(Ok(Some((store, elsewhere)))) => {
                if let Some(clusters) = elsewhere {
                    let known = self.elsewhere.write();
                    *known.unwrap_or_else(PoisonError::into_inner) = clusters;
                }
                self.is_away.store(false, Ordering::Relaxed);
                return Some(store);
            }
            Ok(Ok(None)) => return None,
            Ok(Err(error)) => error,
            Err(_elapsed) => LakeError::Engine {
                doing: "reading the lake",
                reason: format!("no answer within {} s", PATIENCE.as_secs()),
            },
        };
        self.report_away(&error);
        None
    }

    fn report_away(&self, error: &(dyn std::error::Error + 'static)) {
        self.is_away.store(true, Ordering::Relaxed);
        tracing::warn!(
            error = chain(error),
            "the lake cannot be read; queries are answered from the database"
        );
    }

    /// Opens or refreshes the engine; `None` shortly after it has failed.
    #[expect(
        clippy::significant_drop_tightening,
        reason = "the guard moves to the thread that refreshes"
    )]
    async fn refreshed(&self) -> Result<Option<Refreshed>, LakeError> {
        let mut all = match Arc::clone(&self.all).try_lock_owned() {
            Ok(all) => all,
            // Another query is waiting for a lake that does not answer.
            Err(_locked) if self.is_away.load(Ordering::Relaxed) => return Ok(None),
            Err(_locked) => Arc::clone(&self.all).lock_owned().await,
        };
        if all.failed.is_some_and(|at| at.elapsed() < RETRY_AFTER) {
            self.is_away.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        let committed = *self.own.committed().borrow();
        let is_fresh = |(at, last): (Stopwatch, u64)| last == committed && at.elapsed() < FRESH_FOR;
        if let (Some(opened), true) = (&all.store, all.refreshed.is_some_and(is_fresh)) {
            return Ok(Some((Arc::clone(&opened.store), None)));
        }
        // A caller that stops waiting does not end this: the catalog may answer late.
        let refreshed = spawn_blocking(move || {
            let refreshed = refresh(&mut all);
            all.failed = refreshed.is_err().then(Stopwatch::start);
            all.refreshed = refreshed.is_ok().then(|| (Stopwatch::start(), committed));
            refreshed
        });
        let failed = |error: tokio::task::JoinError| LakeError::Engine {
            doing: "reading the lake",
            reason: error.to_string(),
        };
        refreshed.await.map_err(failed)?.map(Some)
    }
}

/// The store, and the clusters of other instances if they were read again.
type Refreshed = (Arc<DuckDbStore>, Option<BTreeSet<ClusterId>>);

/// Shows what is committed now, in a new engine if there is none.
fn refresh(all: &mut OwnedMutexGuard<All>) -> Result<Refreshed, LakeError> {
    let store = if let Some(opened) = &all.store {
        Arc::clone(&opened.store)
    } else {
        let opened = open(all)?;
        let store = Arc::clone(&opened.store);
        all.store = Some(opened);
        store
    };
    match store.refresh_lake() {
        Ok(elsewhere) => Ok((store, Some(elsewhere))),
        Err(error) => {
            drop(store);
            // A new engine reads the files with the credentials again.
            all.store
                .take_if(|opened| Arc::strong_count(&opened.store) == 1);
            Err(error.into())
        }
    }
}

fn open(all: &All) -> Result<Opened, LakeError> {
    let failed = |source| LakeError::File {
        path: std::env::temp_dir(),
        source,
    };
    let folder = tempfile::tempdir().map_err(failed)?;
    let config = DuckDbConfig {
        path: Path::join(folder.path(), "fleet.duckdb"),
        lake: Some(reader::source(&all.lake)?),
        ..all.config.clone()
    };
    let store = DuckDbStore::open_beside(&config, Arc::clone(&all.clock), all.slices.try_clone()?)?;
    Ok(Opened {
        store: Arc::new(store),
        _folder: folder,
    })
}
