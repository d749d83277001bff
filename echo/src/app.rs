//! The composition root: builds the components in the order of their dependencies, binds, spawns and drains.
//!
//! Only this module spawns tasks and waits for signals.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use echo_access::AccessError;
use echo_core::clock::{Clock, SystemClock};
use echo_core::ids::IdError;
use echo_core::policy_table::PolicyTable;
use echo_store::duckdb::{DuckDbConfig, DuckDbStore};
use echo_store::{EventStore, StoreError};
use echo_tools::rates::RatesError;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::app::api_listener::Asking;
use crate::app::inputs::Inputs;
use crate::app::jwks::Keeper;
use crate::app::otlp_listeners::Doors;
use crate::app::routes::{cores, routes};
use crate::app::sources::Source;
use crate::config::{ConfigError, ServeArgs};
use crate::feedback::hours::HourCloser;
use crate::feedback::refresh::Refresh;
use echo_ingest::accept::{Ingest, IngestConfig};
use echo_ingest::misrouted::Strays;
use echo_serve::http::RuntimeState;
use echo_serve::http::health::Readiness;
use echo_serve::middleware::Middleware;
use echo_serve::open_files;
use echo_serve::tls::{Encryption, TlsError};

mod api_listener;
mod inputs;
mod jwks;
mod otlp_listeners;
mod routes;
mod sources;
mod trace_loop;

/// How long open requests may take to finish once Echo is told to stop.
const DRAIN_FOR: Duration = Duration::from_secs(10);

/// How long open questions may take after that.
const ANSWER_FOR: Duration = Duration::from_secs(5);

/// How long opening the database may take before probes are told that Echo is starting.
const OPENS_WITHIN: Duration = Duration::from_secs(1);

/// Listeners: OTLP over gRPC, over HTTP, and questions.
const LISTENERS: u64 = 3;

/// A running Echo.
#[derive(Debug)]
pub struct App {
    otlp_address: SocketAddr,
    otlp_http_address: SocketAddr,
    asking: Asking,
    policies: watch::Receiver<Arc<PolicyTable>>,
    judged: watch::Receiver<u64>,
    store: Arc<DuckDbStore>,
    stopping: watch::Sender<bool>,
    stop_judging: watch::Sender<bool>,
    listeners: JoinSet<()>,
    watcher: JoinSet<()>,
    detector: JoinSet<()>,
    interrupt: Signal,
    terminate: Signal,
}

/// Why Echo could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The flags do not fit together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The price table cannot be used.
    #[error(transparent)]
    Rates(#[from] RatesError),
    /// The access file cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A file cannot be read, or not be written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The database cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An address cannot be listened on.
    #[error(
        "cannot listen on {address} ({flag}): is another fleet-echo running? choose another address"
    )]
    Bind {
        /// The flag that names the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A name that Echo itself uses is not a name.
    #[error(transparent)]
    Name(#[from] IdError),
    /// A listener does not say where it listens.
    #[error("cannot learn the address of a listener")]
    Address(#[source] std::io::Error),
    /// Signals cannot be received.
    #[error("cannot wait for signals")]
    Signal(#[source] std::io::Error),
    /// A task of Echo ended by a defect.
    #[error("a task ended by a defect")]
    Task(#[from] tokio::task::JoinError),
}

impl App {
    /// Builds, binds and starts. Port 0 takes a free port.
    pub async fn start(args: &ServeArgs) -> Result<Self, AppError> {
        let settings = args.check()?;
        let args = &within_limits(args);
        // Caught from the first moment on: whoever sees Echo ready may tell it to stop.
        let interrupt = signal(SignalKind::interrupt()).map_err(AppError::Signal)?;
        let terminate = signal(SignalKind::terminate()).map_err(AppError::Signal)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let inputs = Inputs::read(args, &clock)?;
        let hangup = sources::hangup().map_err(AppError::Signal)?;
        let (store, asking) = open(args, &clock, (&inputs.terms, &inputs.of_questions)).await?;
        let doors = Doors::open(args, &asking, &inputs).await?;
        // Not before: who cannot start says why in one line.
        inputs::warn_of_risks(args);
        let shared: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(&store);

        let (table, policies) = watch::channel(Arc::new(PolicyTable::default()));
        let (progress, judged) = watch::channel(0);
        let (stopping, listening) = watch::channel(false);
        let (stop_judging, judging) = watch::channel(false);

        let refresh = Refresh::new(
            (Arc::clone(&shared), Arc::clone(&clock)),
            settings,
            table,
            progress,
        )?;
        let ingest = Ingest::new(
            IngestConfig::default(),
            (Arc::clone(&shared), Arc::clone(&clock)),
            policies.clone(),
            Strays::of(args.shard.shard().map(Arc::new)),
        );
        asking.answer(routes(
            args,
            (&store, &ingest),
            (&inputs, clock),
            feeds((&judged, &policies), &listening),
            doors.seen(&asking),
        ));
        let (otlp_address, otlp_http_address) = (doors.otlp_address, doors.otlp_http_address);
        let listeners = doors.listen(ingest, listening);
        let mut watcher = watching((inputs.sources, hangup), inputs.keeper, &judging);
        let closing = (judged.clone(), judging.clone());
        watcher.spawn(close_hours(shared, args.limits.cost_grace, closing));
        let mut detector = JoinSet::new();
        // A thread of its own: a block of ten thousand ranks takes a while to judge, and no request should wait for that.
        let runtime = Handle::current();
        detector.spawn_blocking(move || runtime.block_on(refresh.run(judging)));
        Ok(Self {
            otlp_address,
            otlp_http_address,
            asking,
            policies,
            judged,
            store,
            stopping,
            stop_judging,
            listeners,
            watcher,
            detector,
            interrupt,
            terminate,
        })
    }

    /// Address of the OTLP listener.
    pub const fn otlp_address(&self) -> SocketAddr {
        self.otlp_address
    }

    /// Address of the listener for OTLP over HTTP.
    pub const fn otlp_http_address(&self) -> SocketAddr {
        self.otlp_http_address
    }

    /// Address of the HTTP listener.
    pub const fn http_address(&self) -> SocketAddr {
        self.asking.address
    }

    /// The policies as they are pushed to agents.
    pub fn policies(&self) -> watch::Receiver<Arc<PolicyTable>> {
        self.policies.clone()
    }

    /// Waits until everything that is committed now has been judged.
    pub async fn caught_up(&self) {
        let committed = *self.store.committed().borrow();
        let mut judged = self.judged.clone();
        // The detector ends only with the application, and then there is nothing to wait for.
        let _ended = judged.wait_for(|id| *id >= committed).await;
    }

    /// Runs until SIGINT or SIGTERM, or until a listener fails; then drains. A second signal ends the draining.
    pub async fn run_until_signal(mut self) -> Result<(), AppError> {
        let failed = tokio::select! {
            _ = self.interrupt.recv() => None,
            _ = self.terminate.recv() => None,
            ended = self.listeners.join_next() => ended.map(|ended| ended.map(Ok)),
            ended = self.asking.tasks.join_next() => ended.map(|ended| ended.map(Ok)),
            // Without its detector Echo would go on storing and never judge again.
            ended = self.detector.join_next() => ended.map(|ended| ended.map(Ok)),
            error = self.store.failed() => Some(Ok(Err(AppError::Store(error)))),
        };
        info!("stopping: no new requests, finishing what is open");
        let drained = self.stop().await;
        match failed {
            Some(ended) => ended?.and(drained),
            None => drained,
        }
    }

    /// Says to probes that it is no longer ready, stops listening, lets open requests finish for a while, judges what is
    /// committed, and closes the database.
    pub async fn stop(mut self) -> Result<(), AppError> {
        self.stopping.send_replace(true);
        let drained = tokio::select! {
            drained = timeout(DRAIN_FOR, finish(&mut self.listeners)) => drained,
            _ = self.interrupt.recv() => Ok(Ok(())),
            _ = self.terminate.recv() => Ok(Ok(())),
        };
        if drained.is_err() {
            warn!(
                after_s = DRAIN_FOR.as_secs(),
                "some requests did not finish and are cut off"
            );
        }
        self.listeners.abort_all();
        // Probes have been answered until here.
        let answered = timeout(ANSWER_FOR, self.asking.finish()).await;
        if answered.is_err() {
            warn!("some questions were not answered in time and are cut off");
        }
        self.asking.tasks.abort_all();
        self.stop_judging.send_replace(true);
        let judged = self.detector.join_next().await.transpose();
        self.watcher.abort_all();
        self.store.close().await?;
        judged?;
        drained.unwrap_or(Ok(()))
    }
}

/// Looks at what changes outside, until `judging` says to stop.
fn watching(
    (sources, hangup): (Vec<Box<dyn Source>>, Signal),
    keeper: Option<Keeper>,
    judging: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut watcher = JoinSet::new();
    watcher.spawn(sources::watch(sources, hangup, judging.clone()));
    if let Some(keeper) = keeper {
        watcher.spawn(keeper.keep(judging.clone()));
    }
    watcher
}

/// Closes hours of costs until told to stop.
async fn close_hours(
    store: Arc<dyn EventStore>,
    grace: Duration,
    (judged, stop): (watch::Receiver<u64>, watch::Receiver<bool>),
) {
    let clock = Arc::new(SystemClock);
    HourCloser::new((store, clock), grace, judged)
        .run(stop)
        .await;
}

/// What questions are told of what changes.
fn feeds(
    (judged, policies): (&watch::Receiver<u64>, &watch::Receiver<Arc<PolicyTable>>),
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

async fn finish(listeners: &mut JoinSet<()>) -> Result<(), AppError> {
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

/// The arguments with as many connections as the process may have files for.
fn within_limits(args: &ServeArgs) -> ServeArgs {
    let mut args = args.clone();
    let asked = args.bounds.max_connections;
    let each = open_files::raise_limit(LISTENERS * u64::from(asked.get())) / LISTENERS;
    let each = u32::try_from(each).ok().and_then(NonZeroU32::new);
    args.bounds.max_connections = each.unwrap_or(NonZeroU32::MIN);
    if args.bounds.max_connections < asked {
        info!(
            "a listener takes {} connections, not {asked}: the process may not open more files (ulimit -n, LimitNOFILE)",
            args.bounds.max_connections
        );
    }
    args
}

/// Opens the database, which may take minutes when a log has to be read back or a schema brought up to date, and the
/// listener for probes and questions.
///
/// The database first, unless it takes long: of two processes with the same flags, the second is told who holds the file.
async fn open(
    args: &ServeArgs,
    clock: &Arc<dyn Clock>,
    (terms, encryption): (&Middleware, &Encryption),
) -> Result<(Arc<DuckDbStore>, Asking), AppError> {
    let config = DuckDbConfig {
        memory_limit: args.memory_limit,
        // Every question has one at a time.
        readers: args.bounds.queries(cores()),
        limits: args.limits.limits(),
        commit_every: args.bounds.commit_every,
        ..DuckDbConfig::new(&args.db)
    };
    let clock = Arc::clone(clock);
    let mut opening = tokio::task::spawn_blocking(move || DuckDbStore::open(&config, clock));
    if let Ok(opened) = timeout(OPENS_WITHIN, &mut opening).await {
        let store = opened??;
        return Ok((
            Arc::new(store),
            Asking::start(args, (terms, encryption.clone())).await?,
        ));
    }
    info!("opening the database takes a while: probes are told that Echo is starting");
    let asking = Asking::start(args, (terms, encryption.clone())).await?;
    Ok((Arc::new(opening.await??), asking))
}

async fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpListener, AppError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| AppError::Bind {
            flag,
            address,
            source,
        })
}

fn address(listener: &TcpListener) -> Result<SocketAddr, AppError> {
    listener.local_addr().map_err(AppError::Address)
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // A closed channel means that the application is gone, which is a reason to stop as well.
    let _closed = stop.wait_for(|stop| *stop).await;
}
