//! Composition root: builds the components in dependency order, binds, spawns tasks and drains.
//!
//! Only this module spawns tasks and waits for signals.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use echo_access::AccessError;
use echo_actions::policy::PolicyError;
use echo_core::clock::{Clock, SystemClock};
use echo_core::ids::IdError;
use echo_core::policy_table::PolicyTable;
use echo_store::duckdb::{DuckDbConfig, DuckDbStore};
use echo_store::{EventStore, StoreError};
use echo_tools::rates::RatesError;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::app::api_listener::ApiListener;
use crate::app::connection_limit::cores;
use crate::app::inputs::Inputs;
use crate::app::jwks::JwksRefresher;
use crate::app::otlp_listeners::OtlpListeners;
use crate::app::routes::routes;
use crate::app::sockets::{BoundSocket, Sockets};
use crate::app::sources::WatchedFiles;
use crate::config::{ConfigError, ServeArgs};
use crate::feedback::hours::HourCloser;
use crate::feedback::refresh::Refresh;
use echo_ingest::accept::{Ingest, IngestConfig};
use echo_ingest::misrouted::Misrouted;
use echo_serve::http::RuntimeState;
use echo_serve::http::health::Readiness;
use echo_serve::tls::TlsError;

mod actions;
mod api_listener;
mod connection_limit;
mod inputs;
mod jwks;
mod lake;
mod otlp_listeners;
pub mod read_only;
mod readiness;
mod routes;
mod sockets;
mod sources;
mod trace_loop;

/// Time for open ingest requests to finish after a stop signal.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for open API requests to finish after the ingest listeners have drained.
const API_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Time to open the database before the API listener starts and reports `starting` to probes.
const QUICK_OPEN: Duration = Duration::from_secs(1);

/// A running instance.
#[derive(Debug)]
pub struct App {
    otlp_address: SocketAddr,
    otlp_http_address: SocketAddr,
    api: ApiListener,
    policies: watch::Receiver<Arc<PolicyTable>>,
    judged: watch::Receiver<u64>,
    store: Arc<DuckDbStore>,
    stopping: watch::Sender<bool>,
    stop_detector: watch::Sender<bool>,
    listeners: JoinSet<()>,
    watcher: JoinSet<()>,
    detector: JoinSet<()>,
    actions: JoinSet<()>,
    lake: Option<lake::Lake>,
    interrupt: Signal,
    terminate: Signal,
}

/// Error that prevents startup or stops a running instance.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The flags are invalid or contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The rates file is invalid.
    #[error(transparent)]
    Rates(#[from] RatesError),
    /// The policy of actions is invalid.
    #[error(transparent)]
    Actions(#[from] PolicyError),
    /// The access file is invalid.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The database cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A listener cannot bind its address.
    #[error(
        "cannot listen on {address} ({flag}): another fleet-echo may be running; choose another address"
    )]
    Bind {
        /// The flag that names the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// Cause.
        source: std::io::Error,
    },
    /// The certificate or its key is invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A built-in name is invalid.
    #[error(transparent)]
    Name(#[from] IdError),
    /// The local address of a listener is unknown.
    #[error("cannot read the local address of a listener")]
    Address(#[source] std::io::Error),
    /// A signal handler cannot be installed.
    #[error("cannot install a signal handler")]
    Signal(#[source] std::io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// A task panicked.
    #[error("a task panicked")]
    Task(#[from] tokio::task::JoinError),
}

impl App {
    /// Builds, binds and starts an instance with a clock. Port 0 picks a free port.
    pub async fn start(args: &ServeArgs, clock: Arc<dyn Clock>) -> Result<Self, AppError> {
        let settings = args.check()?;
        let args = &connection_limit::with_open_file_limit(args);
        // Installed first: a client that sees the ready line may send a signal at once.
        let interrupt = signal(SignalKind::interrupt()).map_err(AppError::Signal)?;
        let terminate = signal(SignalKind::terminate()).map_err(AppError::Signal)?;
        let sockets = bind(args).await?;
        let inputs = Inputs::read(args, &clock)?;
        let hangup = sources::hangup().map_err(AppError::Signal)?;
        let (store, api) = open(args, &clock, &inputs, sockets.api).await?;
        let otlp = OtlpListeners::listen(sockets.otlp, sockets.otlp_http, args, &inputs)?;
        // After all checks, so that a failed start prints one line only.
        inputs::warn_of_risks(args);
        let shared: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(&store);
        let lake = lake::start(args, &store)?;
        let dispatcher = actions::dispatcher(args, &inputs, &clock)?;

        let (table, policies) = watch::channel(Arc::new(PolicyTable::default()));
        let (progress, judged) = watch::channel(0);
        let (stopping, listening) = watch::channel(false);
        let (stop_detector, detector_stop) = watch::channel(false);

        let refresh = Refresh::new(
            (Arc::clone(&shared), Arc::clone(&clock)),
            settings,
            table.clone(),
            progress,
        )?;
        let ingest = ingest(args, &shared, &clock, policies.clone());
        api.set_routes(routes(
            &at_address(args, otlp.otlp_address),
            (&store, &ingest, lake.as_ref()),
            (&inputs, Arc::clone(&clock)),
            feeds(&judged, &policies, &listening),
            otlp.connections(&api),
        ));
        let context = (&shared, &clock, &judged);
        let actions = actions::start(dispatcher, context, table, &detector_stop);
        let (otlp_address, otlp_http_address) = (otlp.otlp_address, otlp.otlp_http_address);
        let listeners = otlp.serve(ingest, listening);
        let (sources, refresher) = (inputs.sources, inputs.jwks_refresher);
        let mut watcher = spawn_watchers(sources, hangup, refresher, &detector_stop);
        let grace = args.limits.cost_grace;
        let closer = HourCloser::new(shared, Arc::new(SystemClock), grace, judged.clone());
        watcher.spawn(closer.run(detector_stop.clone()));
        let detector = spawn_detector(refresh, detector_stop);
        Ok(Self {
            otlp_address,
            otlp_http_address,
            api,
            policies,
            judged,
            store,
            stopping,
            stop_detector,
            listeners,
            watcher,
            detector,
            actions,
            lake,
            interrupt,
            terminate,
        })
    }

    /// Address of the listener for OTLP over gRPC.
    pub const fn otlp_address(&self) -> SocketAddr {
        self.otlp_address
    }

    /// Address of the listener for OTLP over HTTP.
    pub const fn otlp_http_address(&self) -> SocketAddr {
        self.otlp_http_address
    }

    /// Address of the HTTP listener.
    pub const fn http_address(&self) -> SocketAddr {
        self.api.address
    }

    /// Runs until SIGINT, SIGTERM or a failed task; then drains. A second signal ends the drain.
    pub async fn run_until_signal(mut self) -> Result<(), AppError> {
        let failed = tokio::select! {
            _ = self.interrupt.recv() => None,
            _ = self.terminate.recv() => None,
            ended = self.listeners.join_next() => ended.map(|ended| ended.map(Ok)),
            ended = self.api.tasks.join_next() => ended.map(|ended| ended.map(Ok)),
            // Without the detector, events would be stored but never analysed.
            ended = self.detector.join_next() => ended.map(|ended| ended.map(Ok)),
            error = self.store.failed() => Some(Ok(Err(AppError::Store(error)))),
        };
        info!("shutting down: draining open requests");
        let drained = self.stop().await;
        match failed {
            Some(ended) => ended?.and(drained),
            None => drained,
        }
    }

    /// Reports not ready to probes, stops listening, drains open requests for a limited time,
    /// processes what is committed, and closes the database.
    pub async fn stop(mut self) -> Result<(), AppError> {
        self.stopping.send_replace(true);
        let drained = tokio::select! {
            drained = timeout(DRAIN_TIMEOUT, join_all(&mut self.listeners)) => drained,
            _ = self.interrupt.recv() => Ok(Ok(())),
            _ = self.terminate.recv() => Ok(Ok(())),
        };
        if drained.is_err() {
            warn!(
                after_s = DRAIN_TIMEOUT.as_secs(),
                "drain timeout: aborting open ingest requests"
            );
        }
        self.listeners.abort_all();
        // Probes are answered until here.
        let answered = timeout(API_DRAIN_TIMEOUT, self.api.drain()).await;
        if answered.is_err() {
            warn!("drain timeout: aborting open API requests");
        }
        self.api.tasks.abort_all();
        self.stop_detector.send_replace(true);
        let judged = self.detector.join_next().await.transpose();
        join_all(&mut self.actions).await?;
        self.watcher.abort_all();
        lake::stop(self.lake.take()).await?;
        self.store.close().await?;
        judged?;
        drained.unwrap_or(Ok(()))
    }
}

/// Returns the arguments with the address that is bound.
fn at_address(args: &ServeArgs, otlp_listen: SocketAddr) -> ServeArgs {
    let args = args.clone();
    ServeArgs {
        otlp_listen,
        ..args
    }
}

/// Creates the ingest path.
fn ingest(
    args: &ServeArgs,
    store: &Arc<dyn EventStore>,
    clock: &Arc<dyn Clock>,
    policies: watch::Receiver<Arc<PolicyTable>>,
) -> Ingest {
    Ingest::new(
        args.ingest(),
        (Arc::clone(store), Arc::clone(clock)),
        policies,
        Misrouted::new(args.shard.shard().map(Arc::new)),
    )
}

/// Spawns the tasks that reload files and key sets, until `detector_stop` turns true.
fn spawn_watchers(
    sources: Vec<Box<dyn WatchedFiles>>,
    hangup: Signal,
    jwks_refresher: Option<JwksRefresher>,
    detector_stop: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut watcher = JoinSet::new();
    watcher.spawn(sources::watch(sources, hangup, detector_stop.clone()));
    if let Some(refresher) = jwks_refresher {
        watcher.spawn(refresher.run(detector_stop.clone()));
    }
    watcher
}

/// Spawns the detector on a thread of its own: the analysis of a block of 10,000 ranks must not delay
/// requests.
fn spawn_detector(refresh: Refresh, stop: watch::Receiver<bool>) -> JoinSet<()> {
    let mut detector = JoinSet::new();
    detector.spawn_blocking(|| Handle::current().block_on(refresh.run(stop)));
    detector
}

/// Channels through which API handlers observe the detector and the policies.
fn feeds(
    judged: &watch::Receiver<u64>,
    policies: &watch::Receiver<Arc<PolicyTable>>,
    stopping: &watch::Receiver<bool>,
) -> RuntimeState {
    RuntimeState {
        judged: judged.clone(),
        policies: policies.clone(),
        readiness: Readiness {
            stopping: stopping.clone(),
            append_deadline: IngestConfig::default().append_deadline,
        },
    }
}

async fn join_all(listeners: &mut JoinSet<()>) -> Result<(), AppError> {
    while let Some(ended) = listeners.join_next().await {
        ended?;
    }
    Ok(())
}

/// Waits for SIGINT or SIGTERM.
pub async fn interrupted() -> Result<(), AppError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(AppError::Signal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(AppError::Signal)?;
    tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

/// Binds the listeners, before any file is created. Of two processes with the same flags, the
/// second reports the lock of the database and not the port.
async fn bind(args: &ServeArgs) -> Result<Sockets, AppError> {
    let bound = Sockets::bind(args);
    if bound.is_err() {
        DuckDbStore::check_unlocked(&args.db)?;
    }
    let sockets = bound?;
    trace_loop::refuse_own_endpoint(&args.trace, &sockets.addresses()).await?;
    Ok(sockets)
}

/// Opens the database and starts the API listener. Opening may take minutes while a write-ahead log
/// is replayed or the schema is migrated; probes are answered after the first second of it.
async fn open(
    args: &ServeArgs,
    clock: &Arc<dyn Clock>,
    inputs: &Inputs,
    socket: BoundSocket,
) -> Result<(Arc<DuckDbStore>, ApiListener), AppError> {
    let config = DuckDbConfig {
        memory_limit: args.memory_limit,
        // Each query uses one reader at a time.
        readers: args.bounds.queries(cores()),
        limits: args.limits.limits(),
        commit_every: args.bounds.commit_every,
        keep_until_copied: args.lake.committer(&args.db).is_some(),
        ..DuckDbConfig::new(&args.db)
    };
    let clock = Arc::clone(clock);
    let mut opening = tokio::task::spawn_blocking(move || DuckDbStore::open(&config, clock));
    if let Ok(opened) = timeout(QUICK_OPEN, &mut opening).await {
        let store = opened??;
        return Ok((Arc::new(store), ApiListener::start(args, inputs, socket)?));
    }
    info!("opening the database takes long; probes report `starting` until it is open");
    let api = ApiListener::start(args, inputs, socket)?;
    Ok((Arc::new(opening.await??), api))
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // A closed channel means that the application is gone, which also means stop.
    let _closed = stop.wait_for(|stop| *stop).await;
}
