//! An instance that reads a lake: tools, pages, SQL and metrics, without events and detector of its
//! own.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use echo_core::clock::Clock;
use echo_core::policy_table::PolicyTable;
use echo_lake::reader;
use echo_serve::listener::Connections;
use echo_store::duckdb::{DuckDbConfig, DuckDbStore};
use echo_store::{EventStore, StoreError};
use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::app::api_listener::ApiListener;
use crate::app::connection_limit::with_open_file_limit;
use crate::app::inputs::{Inputs, warn_of_risks};
use crate::app::routes::routes;
use crate::app::sockets::BoundSocket;
use crate::app::{API_DRAIN_TIMEOUT, AppError, feeds, ingest, lake, sources, spawn_watchers};
use crate::config::{ConfigError, ServeArgs};

/// A running instance that reads a lake.
#[derive(Debug)]
pub struct ReadOnlyApp {
    api: ApiListener,
    store: Arc<DuckDbStore>,
    stopping: watch::Sender<bool>,
    stop_watcher: watch::Sender<bool>,
    watcher: JoinSet<()>,
    interrupt: Signal,
    terminate: Signal,
    /// Folder of the database without rows, removed last.
    _folder: TempDir,
}

impl ReadOnlyApp {
    /// Attaches the lake, binds and starts. Port 0 picks a free port.
    pub async fn start(args: &ServeArgs, clock: Arc<dyn Clock>) -> Result<Self, AppError> {
        args.check()?;
        let args = &with_open_file_limit(args);
        let interrupt = signal(SignalKind::interrupt()).map_err(AppError::Signal)?;
        let terminate = signal(SignalKind::terminate()).map_err(AppError::Signal)?;
        let socket = BoundSocket::bind("--http-listen", args.http_listen)?;
        let inputs = Inputs::read(args, &clock)?;
        let hangup = sources::hangup().map_err(AppError::Signal)?;
        let folder = tempfile::tempdir().map_err(|source| AppError::File {
            path: std::env::temp_dir(),
            source,
        })?;
        let store = open(args, folder.path(), &clock).await?;
        let api = ApiListener::start(args, &inputs, socket)?;
        warn_of_risks(args);
        let shared: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(&store);
        // Nothing is sent on these channels: agents and the detector are elsewhere.
        let policies = watch::channel(Arc::new(PolicyTable::default())).1;
        let judged = watch::channel(0).1;
        let (stopping, listening) = watch::channel(false);
        let (stop_watcher, watcher_stop) = watch::channel(false);
        let ingest = ingest(args, &shared, &clock, policies.clone());
        api.set_routes(routes(
            args,
            (&store, &ingest, None),
            (&inputs, clock),
            feeds(&judged, &policies, &listening),
            [
                ("otlp", Connections::default()),
                ("otlp_http", Connections::default()),
                ("http", api.connections.clone()),
            ],
        ));
        let (files, refresher) = (inputs.sources, inputs.jwks_refresher);
        Ok(Self {
            watcher: spawn_watchers(files, hangup, refresher, &watcher_stop),
            api,
            store,
            stopping,
            stop_watcher,
            interrupt,
            terminate,
            _folder: folder,
        })
    }

    /// Address of the HTTP listener.
    pub const fn http_address(&self) -> SocketAddr {
        self.api.address
    }

    /// Runs until SIGINT, SIGTERM or a failed task; then drains.
    pub async fn run_until_signal(mut self) -> Result<(), AppError> {
        let failed = tokio::select! {
            _ = self.interrupt.recv() => None,
            _ = self.terminate.recv() => None,
            ended = self.api.tasks.join_next() => ended,
            error = self.store.failed() => return Err(error.into()),
        };
        info!("shutting down: draining open requests");
        self.stopping.send_replace(true);
        if timeout(API_DRAIN_TIMEOUT, self.api.drain()).await.is_err() {
            warn!("drain timeout: aborting open API requests");
        }
        self.api.tasks.abort_all();
        self.stop_watcher.send_replace(true);
        self.watcher.abort_all();
        self.store.close().await?;
        Ok(failed.transpose().map(|_ended| ())?)
    }
}

/// Opens a new database in the folder, whose rows are those of the lake.
async fn open(
    args: &ServeArgs,
    folder: &Path,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<DuckDbStore>, AppError> {
    let mut wrong = Vec::new();
    let found = args.lake.location.lake(&mut wrong);
    let absent =
        || ConfigError::new("--read-only requires --lake or --lake-catalog-file".to_owned());
    let found = reader::source(&found.ok_or_else(absent)?);
    let config = DuckDbConfig {
        memory_limit: args.memory_limit,
        // Queries wait for files of the lake, so all cores serve them.
        threads: std::thread::available_parallelism()
            .map(NonZeroUsize::get)
            .ok(),
        path: folder.join("fleet.duckdb"),
        lake: Some(found.map_err(|error| ConfigError::new(error.to_string()))?),
        ..lake::reading(args)
    };
    let clock = Arc::clone(clock);
    let opening = tokio::task::spawn_blocking(move || DuckDbStore::open(&config, clock));
    let opened: Result<DuckDbStore, StoreError> = opening.await?;
    Ok(Arc::new(opened?))
}
