//! Assembles the parts of the store.

use std::sync::{Arc, Mutex};

use duckdb::Connection;
use echo_core::clock::Clock;
use tokio::sync::watch;

use crate::StoreError;
use crate::duckdb::checkpoint::{Backlog, Checkpoints};
use crate::duckdb::commit::{Session, Shared};
use crate::duckdb::connection_pool::ConnectionPool;
use crate::duckdb::coverage::CoverageCache;
use crate::duckdb::dictionary::Dictionary;
use crate::duckdb::disk_space::DiskSpace;
use crate::duckdb::engine::{engine, unreadable};
use crate::duckdb::fatal::{Fatal, or_fatal};
use crate::duckdb::file_check::FileCheck;
use crate::duckdb::hours::HoursCache;
use crate::duckdb::lake::{Caches, LakeSnapshot};
use crate::duckdb::lake_source::LakeSource;
use crate::duckdb::lock::{Lock, canonical};
use crate::duckdb::maintenance::{Maintenance, MaintenanceRounds};
use crate::duckdb::migrations::Migration;
use crate::duckdb::open::Opened;
use crate::duckdb::read_gate::ReadGate;
use crate::duckdb::redaction::Hidden;
use crate::duckdb::retention::{Progress, Retention};
use crate::duckdb::slices::SliceReader;
use crate::duckdb::sql::SqlPool;
use crate::duckdb::sql::file_turns::FileTurns;
use crate::duckdb::tail_cache::TailCache;
use crate::duckdb::writer::{Writer, no_thread};
use crate::duckdb::{DuckDbConfig, DuckDbStore, filesystem, open, permissions};
use crate::timings::Timings;

impl DuckDbStore {
    pub(super) fn open_with(
        config: &DuckDbConfig,
        clock: Arc<dyn Clock>,
        migrations: &[Migration],
    ) -> Result<Self, StoreError> {
        let path = canonical(&config.path)?;
        filesystem::check(&path)?;
        let lock = Arc::new(Lock::acquire(&path, clock.now())?);
        permissions::tighten(&path);
        let disk_space = Arc::new(DiskSpace::new(&path, config.limits));
        disk_space.prepare();
        let started = open::open(&path, config, migrations, &*clock).and_then(|opened| {
            let file_check = FileCheck::new(&path, Fatal::default())
                .map_err(|error| unreadable(&path, error.to_string()))?;
            let lake = match &config.lake {
                None => None,
                Some(_) => Some(opened.connection.try_clone().map_err(engine("starting"))?),
            };
            let held = Arc::clone(&lock);
            let store = start((opened, file_check), lock, (disk_space, config), clock)?;
            store.with_lake(lake.zip(config.lake.as_ref()), held)
        });
        started.map_err(or_fatal)
    }

    /// Reads the rows of a lake on this connection.
    fn with_lake(
        self,
        lake: Option<(Connection, &LakeSource)>,
        lock: Arc<Lock>,
    ) -> Result<Self, StoreError> {
        let Some((connection, source)) = lake else {
            return Ok(self);
        };
        let caches = Caches {
            dictionary: Arc::clone(&self.dictionary),
            coverage: Arc::clone(&self.coverage),
            hours: Arc::clone(&self.hours),
        };
        let shown = LakeSnapshot::load(connection, caches, source, self.sql.turns())?;
        let hidden = Hidden::new(&source.secrets);
        let lake = shown.follow(source.refresh_every, lock)?;
        Ok(Self {
            readers: self.readers.hiding(&hidden),
            sql: self.sql.with_lake(&source.attach, &hidden),
            _lake: Some(lake),
            ..self
        })
    }
}

fn start(
    (
        Opened {
            connection,
            memory,
            acknowledged,
        },
        file_check,
    ): (Opened, FileCheck),
    lock: Arc<Lock>,
    (disk_space, config): (Arc<DiskSpace>, &DuckDbConfig),
    clock: Arc<dyn Clock>,
) -> Result<DuckDbStore, StoreError> {
    let starting = engine("starting");
    let fatal = file_check.fatal().clone();
    let (backlog, gate, turns): (Arc<Backlog>, Arc<ReadGate>, Arc<FileTurns>) = Default::default();
    let pool =
        |count| ConnectionPool::new(&connection, count, &lock, &gate, &fatal).map_err(&starting);
    let (follower, readers) = (pool(1)?, pool(config.readers.max(1))?);
    let sql = SqlPool::new(&config.sql_program, &config.path, memory, &turns);
    let (announce, committed) = watch::channel(0);
    let progress = Progress::new(config.keep_until_copied);
    let slices = SliceReader::new(&connection, &lock, &gate, committed.clone(), &progress);
    let slices = Mutex::new(slices.map_err(&starting)?);
    let dictionary = Arc::new(Dictionary::new(config.limits.entries));
    let (coverage, hours): (Arc<CoverageCache>, Arc<HoursCache>) = Default::default();
    let tail_cache = Arc::new(TailCache::new(Arc::clone(&dictionary)));
    let timings = Timings::default();
    let shared = Shared {
        dictionary: Arc::clone(&dictionary),
        committed: announce,
        tail_cache: Arc::clone(&tail_cache),
        coverage: Arc::clone(&coverage),
        hours: Arc::clone(&hours),
        backlog: Arc::clone(&backlog),
        clock: Arc::clone(&clock),
        disk_space: Arc::clone(&disk_space),
        file_check: file_check.clone(),
        timings: timings.clone(),
    };
    let timed = timings.clone();
    let checkpoints = Checkpoints::beside(&connection, backlog, (gate, turns), file_check, timed)?;
    let session = Session::load(connection, shared, acknowledged).map_err(&starting)?;
    let writer = Writer::start(session, Arc::clone(&lock), config).map_err(no_thread)?;
    let tasks = writer.maintenance_queue();
    let retention = Retention::new(config.limits, &disk_space, clock, tasks, progress.clone());
    let rounds = MaintenanceRounds {
        checkpoints,
        // The rows of a lake are not the store's to delete.
        retention: config.lake.is_none().then_some(retention),
    };
    let upkeep = Maintenance::start(rounds, lock, config.checkpoint_every).map_err(no_thread)?;
    Ok(DuckDbStore {
        upkeep,
        _lake: None,
        readers,
        sql,
        follower,
        writer,
        dictionary,
        tail_cache,
        coverage,
        hours,
        committed,
        progress,
        slices,
        fatal,
        path: config.path.clone(),
        disk_space,
        timings,
        #[cfg(any(test, feature = "testing"))]
        _scratch: None,
    })
}
