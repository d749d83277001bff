//! The composition root: builds the components in the order of their dependencies, binds, spawns and drains.
//!
//! Only this module spawns tasks and waits for signals.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::clock::{Clock, SystemClock};
use crate::config::{ConfigError, ServeArgs};
use crate::feedback::refresh::Refresh;
use crate::feedback::table::PolicyTable;
use crate::ids::IdError;
use crate::ingest::accept::{Ingest, IngestConfig};
use crate::ingest::otlp::{LogsService, MetricsService, TracesService};
use crate::rates::{Rates, RatesError};
use crate::serve::grpc::{self, GrpcServeError};
use crate::serve::http::metrics::{Metrics, Sources};
use crate::serve::http::{self, HttpServeError};
use crate::serve::otlp_http::{self, OtlpHttpServeError};
use crate::store::duckdb::{DuckDbConfig, DuckDbStore};
use crate::store::{EventStore, StoreError};
use crate::tools::ToolContext;
use crate::tools::registry::Registry;

/// How long open requests may take to finish once Echo is told to stop.
const DRAIN_FOR: Duration = Duration::from_secs(10);

/// A running Echo.
#[derive(Debug)]
pub struct App {
    otlp_address: SocketAddr,
    otlp_http_address: SocketAddr,
    http_address: SocketAddr,
    policies: watch::Receiver<Arc<PolicyTable>>,
    judged: watch::Receiver<u64>,
    store: Arc<DuckDbStore>,
    stop_listening: watch::Sender<bool>,
    stop_judging: watch::Sender<bool>,
    listeners: JoinSet<Result<(), AppError>>,
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
    /// The price table cannot be read.
    #[error("cannot read the rates in {}", path.display())]
    RatesFile {
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
    /// The gRPC listener ended.
    #[error(transparent)]
    Grpc(#[from] GrpcServeError),
    /// The listener for OTLP over HTTP ended.
    #[error(transparent)]
    OtlpHttp(#[from] OtlpHttpServeError),
    /// The HTTP listener ended.
    #[error(transparent)]
    Http(#[from] HttpServeError),
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
        // Caught from the first moment on: whoever sees Echo ready may tell it to stop.
        let interrupt = signal(SignalKind::interrupt()).map_err(AppError::Signal)?;
        let terminate = signal(SignalKind::terminate()).map_err(AppError::Signal)?;
        let rates = read_rates(args)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        // The database before the ports: of two processes with the same flags, the second is told who holds the file.
        let store = Arc::new(open_store(args, &clock).await?);
        let otlp = bind("--otlp-listen", args.otlp_listen).await?;
        let otlp_http = bind("--otlp-http-listen", args.otlp_http_listen).await?;
        let http = bind("--http-listen", args.http_listen).await?;
        let shared: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(&store);

        let (table, policies) = watch::channel(Arc::new(PolicyTable::default()));
        let (progress, judged) = watch::channel(0);
        let (stop_listening, listening) = watch::channel(false);
        let (stop_judging, judging) = watch::channel(false);

        let refresh = Refresh::new(
            (Arc::clone(&shared), Arc::clone(&clock)),
            settings,
            table,
            progress,
        )?;
        let ingest = Ingest::new(
            IngestConfig::default(),
            Arc::clone(&shared),
            Arc::clone(&clock),
            policies.clone(),
        );
        let tools = ToolContext::new(Arc::clone(&shared), rates, Arc::clone(&clock));
        let router = http::router(
            Registry::standard(),
            tools,
            judged.clone(),
            policies.clone(),
            Metrics::of(Sources {
                ingest: ingest.clone(),
                store: shared,
                timings: store.timings(),
                judged: judged.clone(),
            }),
        );
        let addresses = (address(&otlp)?, address(&otlp_http)?, address(&http)?);
        let listeners = listen((otlp, otlp_http, http), ingest, router, listening);
        let mut detector = JoinSet::new();
        detector.spawn(refresh.run(judging));
        Ok(Self {
            otlp_address: addresses.0,
            otlp_http_address: addresses.1,
            http_address: addresses.2,
            policies,
            judged,
            store,
            stop_listening,
            stop_judging,
            listeners,
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
        self.http_address
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
            ended = self.listeners.join_next() => ended,
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

    /// Stops listening, lets open requests finish for a while, judges what is committed, and closes the database.
    pub async fn stop(mut self) -> Result<(), AppError> {
        self.stop_listening.send_replace(true);
        let drained = tokio::select! {
            drained = tokio::time::timeout(DRAIN_FOR, finish(&mut self.listeners)) => drained,
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
        self.stop_judging.send_replace(true);
        let judged = self.detector.join_next().await.transpose();
        self.store.close().await?;
        judged?;
        drained.unwrap_or(Ok(()))
    }
}

/// Serves on the three listeners (OTLP over gRPC, OTLP over HTTP, questions) until `listening` says to stop.
fn listen(
    (otlp, otlp_http, http): (TcpListener, TcpListener, TcpListener),
    ingest: Ingest,
    router: Router,
    listening: watch::Receiver<bool>,
) -> JoinSet<Result<(), AppError>> {
    let mut listeners = JoinSet::new();
    let services = (
        MetricsService::new(ingest.clone()),
        LogsService::new(ingest.clone()),
        TracesService::new(ingest.clone()),
    );
    let until = stopped(listening.clone());
    listeners.spawn(async move { Ok(grpc::serve(otlp, services, until).await?) });
    let until = stopped(listening.clone());
    listeners.spawn(async move { Ok(otlp_http::serve(otlp_http, ingest, until).await?) });
    let until = stopped(listening);
    listeners.spawn(async move { Ok(http::serve(http, router, until).await?) });
    listeners
}

async fn finish(listeners: &mut JoinSet<Result<(), AppError>>) -> Result<(), AppError> {
    while let Some(ended) = listeners.join_next().await {
        ended??;
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

fn read_rates(args: &ServeArgs) -> Result<Rates, AppError> {
    let Some(path) = &args.rates else {
        return Ok(Rates::default());
    };
    let text = std::fs::read_to_string(path).map_err(|source| AppError::RatesFile {
        path: path.clone(),
        source,
    })?;
    Ok(Rates::parse(&text)?)
}

/// Opening may take seconds, when a log has to be replayed or a schema brought up to date.
async fn open_store(args: &ServeArgs, clock: &Arc<dyn Clock>) -> Result<DuckDbStore, AppError> {
    let config = DuckDbConfig {
        memory_limit: args.memory_limit.clone(),
        limits: args.limits.limits(),
        ..DuckDbConfig::new(&args.db)
    };
    let clock = Arc::clone(clock);
    let opened = tokio::task::spawn_blocking(move || DuckDbStore::open(&config, clock)).await?;
    Ok(opened?)
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
