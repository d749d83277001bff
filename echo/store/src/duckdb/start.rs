//! Assembles the parts of the store.

use std::sync::{Arc, Mutex};

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
use crate::duckdb::lock::{Lock, canonical};
use crate::duckdb::maintenance::{Maintenance, MaintenanceRounds};
use crate::duckdb::migrations::Migration;
use crate::duckdb::open::Opened;
use crate::duckdb::read_gate::ReadGate;
use crate::duckdb::retention::{Progress, Retention};
use crate::duckdb::slices::SliceReader;
use crate::duckdb::sql::SqlPool;
use crate::duckdb::tail_cache::TailCache;
use crate::duckdb::writer::Writer;
use crate::duckdb::{DuckDbConfig, DuckDbStore, filesystem, no_thread, open, permissions};
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
            start((opened, file_check), lock, (disk_space, config), clock)
        });
        started.map_err(or_fatal)
    }
}

fn start(
    (Opened { connection, sql }, file_check): (Opened, FileCheck),
    lock: Arc<Lock>,
    (disk_space, config): (Arc<DiskSpace>, &DuckDbConfig),
    clock: Arc<dyn Clock>,
) -> Result<DuckDbStore, StoreError> {
    let starting = engine("starting");
    let fatal = file_check.fatal().clone();
    let backlog = Arc::new(Backlog::default());
    let gate = Arc::new(ReadGate::default());
    let pool =
        |count| ConnectionPool::new(&connection, count, &lock, &gate, &fatal).map_err(&starting);
    let (follower, readers) = (pool(1)?, pool(config.readers.max(1))?);
    let sql = SqlPool::new(sql, &config.path, &lock, &gate, &fatal);
    let (announce, committed) = watch::channel(0);
    let progress = Progress::new(config.keep_until_copied);
    let slices = SliceReader::new(&connection, &lock, &gate, committed.clone(), &progress);
    let slices = Mutex::new(slices.map_err(&starting)?);
    let dictionary = Arc::new(Dictionary::new(config.limits.entries));
    let coverage = Arc::new(CoverageCache::default());
    let hours = Arc::new(HoursCache::default());
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
    let checkpoints = Checkpoints::beside(&connection, backlog, gate, file_check, timings.clone())
        .map_err(&starting)?;
    let session = Session::load(connection, shared).map_err(&starting)?;
    let writer = Writer::start(session, Arc::clone(&lock), config).map_err(no_thread)?;
    let tasks = writer.maintenance_queue();
    let rounds = MaintenanceRounds {
        checkpoints,
        retention: Retention::new(config.limits, &disk_space, clock, tasks, progress.clone()),
    };
    let upkeep = Maintenance::start(rounds, lock, config.checkpoint_every).map_err(no_thread)?;
    Ok(DuckDbStore {
        upkeep,
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
