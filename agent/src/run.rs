//! Live agent: watches this host and reports to Echo until it is stopped. One thread polls the
//! probes, one task aggregates events, one sends.

mod agent;
mod captures;
mod measuring;
mod ras;
mod running_operations;
mod self_metrics;
mod stacks;

use std::sync::Arc;
use std::time::Duration;

use fleet_agent_core::event::Event;
use fleet_agent_core::vitals::LostEvents;
use fleet_agent_export::Forward;
use fleet_agent_export::otlp::EndpointError;
use fleet_agent_export::sender::Sender;
use fleet_agent_export::spool::SpoolError;
use fleet_agent_health::sentinel::SentinelError;
use fleet_agent_health::standing::Standings;
use fleet_agent_sources::live::{InFlightTable, Live, Stop};
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::watch::{Health, Watch, WatchError, WatchSettings};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use crate::config::{RunArgs, WatchArgs};
use crate::health::HostHealth;
use crate::hooks::HookServer;
use crate::metrics::{MetricsError, MetricsServer};
use crate::run::agent::Agent;
use crate::run::measuring::Measuring;
use crate::run::self_metrics::SelfMetrics;
use crate::run::stacks::stack_sampling;
use crate::socket::SocketError;

/// Shorter synchronizations are not reported: nothing was waited for, and some programs poll all
/// the time. A rank that is late to every collective has short waits, but not as short as this.
pub const MIN_WAIT: Duration = Duration::from_micros(10);
/// Polls queued for aggregation. When the queue is full, the ring buffer fills, and events that do
/// not fit are counted.
const MAX_QUEUED_POLLS: usize = 64;
/// Time to send what is queued at shutdown. Kubernetes terminates a pod after 30 s.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Error of the live agent.
#[derive(Debug, Error)]
pub enum RunError {
    /// The host cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The spool cannot be used.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The hook socket or the health socket cannot be served.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The socket of `NVSentinel` cannot be used.
    #[error(transparent)]
    Sentinel(#[from] SentinelError),
    /// The metrics endpoint cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The receiver of metrics cannot be used.
    #[error("--metrics-endpoint: {0}")]
    MetricsEndpoint(#[from] EndpointError),
    /// A task of the agent panicked.
    #[error("internal error: a task of the agent failed ({0}); its points were not delivered")]
    TaskFailed(#[from] JoinError),
}

/// Result of one poll of the watch.
#[derive(Debug)]
struct PollResult {
    now_ns: u64,
    events: Vec<Event>,
    in_flight: Vec<InFlightTable>,
    lost: LostEvents,
}

/// Starts the watch. Pins are a convenience for the next agent: without `--pin`, a host that has no
/// BPF file system is watched without them.
fn start_watch(args: &WatchArgs) -> Result<Watch, WatchError> {
    let settings = args.settings(MIN_WAIT);
    match Watch::start(&settings) {
        Err(error @ WatchError::PinFolder { .. }) if args.pin.is_none() => {
            tracing::warn!("{error}; until then probes end with this agent");
            Watch::start(&WatchSettings {
                pins: None,
                ..settings
            })
        }
        started => started,
    }
}

/// Runs until `stop` resolves, as `node`.
pub async fn run<E: Forward>(
    args: &RunArgs,
    node: &str,
    exporter: E,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    // Everything that can fail is checked first: attaching probes affects the jobs of the host.
    let spool = args.sender.open_spool()?;
    let hooks = bind_hooks(args).await?;
    let health = HostHealth::bind(&args.health).await?;
    let health = health.with_sentinel(&args.health, node)?;
    let metrics = bind_metrics(args).await?;
    let measuring = Measuring::new(args, node)?;
    let watch = start_watch(&args.watch)?;
    log_health(&watch.health());

    let (outbox, finish, sender) = Sender::new(exporter, args.sender.settings(), spool);
    let own = SelfMetrics::new(sender.vitals(), hooks.as_ref().map(HookServer::hooks));
    let own = own.with_sentinel(health.sentinel_counts());
    let standings = Standings::new(outbox.statements(), node);
    let own = own.with_standings(standings.clone());
    let self_metrics =
        Arc::new(own.with_measurements(measuring.as_ref().map(Measuring::measurements)));
    let (mut agent, ras) = Agent::new(args, node, outbox, Arc::clone(&self_metrics));
    let mut tasks = JoinSet::new();
    if let Some((sampling, task)) = stack_sampling(&args.stacks, &self_metrics) {
        agent.set_stack_sampling(sampling);
        let calls = watch.calls();
        tasks.spawn_blocking(move || task.run(&calls));
    }
    if let Some(ras) = ras {
        tasks.spawn(ras.run());
    }
    tasks.spawn(async {
        sender.run().await;
    });
    let (running, finished) = watch::channel(());
    if let Some(hooks) = hooks {
        tasks.spawn(hooks.serve(until_finished(finished.clone())));
    }
    tasks.spawn(health.run(standings, until_finished(finished.clone())));
    if let Some(measuring) = measuring {
        tasks.spawn(measuring.run(until_finished(finished.clone())));
    }
    if let Some(metrics) = metrics {
        tasks.spawn(serve_metrics(metrics, self_metrics, finished));
    }
    process_events(
        agent,
        watch,
        (args.watch.keep_probes, stop),
        &mut tasks,
        || finish.stop_within(FLUSH_TIMEOUT),
    )
    .await;
    drop(running);
    while let Some(joined) = tasks.join_next().await {
        joined?;
    }
    Ok(())
}

/// Resolves when the agent has finished.
async fn until_finished(mut finished: watch::Receiver<()>) {
    // Nothing is ever sent on the channel; it closes then.
    let _gone = finished.changed().await;
}

/// Serves the metrics until the agent has finished.
async fn serve_metrics(
    server: MetricsServer,
    self_metrics: Arc<SelfMetrics>,
    finished: watch::Receiver<()>,
) {
    let own = Arc::clone(&self_metrics);
    let measurements = move || own.measurements();
    let vitals = move || self_metrics.vitals();
    server
        .serve(vitals, measurements, until_finished(finished))
        .await;
}

/// Creates the hook socket, if there is one.
async fn bind_hooks(args: &RunArgs) -> Result<Option<HookServer>, SocketError> {
    match &args.hook_socket {
        Some(path) => HookServer::bind(path).await.map(Some),
        None => Ok(None),
    }
}

/// Binds the address of the metrics, if there is one.
async fn bind_metrics(args: &RunArgs) -> Result<Option<MetricsServer>, MetricsError> {
    match args.metrics_listen {
        Some(address) => {
            let token = args.metrics_token_file.as_deref();
            MetricsServer::bind(address, token).await.map(Some)
        }
        None => Ok(None),
    }
}

/// Passes the events of the watch to the agent until `stop` resolves.
async fn process_events(
    mut agent: Agent,
    watch: Watch,
    (keep_probes, stop): (bool, impl Future<Output = ()>),
    tasks: &mut JoinSet<()>,
    finish: impl FnOnce(),
) {
    let stop_request = Stop::default();
    let live = Live::new(watch, Processes::new("/proc"), stop_request.clone());
    let (sender, mut polls) = mpsc::channel(MAX_QUEUED_POLLS);
    tasks.spawn_blocking(move || poll(live, sender, keep_probes));
    let mut stop = Box::pin(stop);
    loop {
        tokio::select! {
            () = &mut stop, if !stop_request.is_requested() => stop_request.request(),
            polled = polls.recv() => match polled {
                Some(polled) => agent.ingest(polled).await,
                None => break,
            },
            answer = agent.next_ras_answer() => agent.report_ras(answer).await,
        }
    }
    finish();
    agent.finish().await;
}

/// Polls until a stop is requested or the receiver is closed.
fn poll(mut live: Live, polls: mpsc::Sender<PollResult>, keep_probes: bool) {
    loop {
        let has_ended = !live.poll();
        let events: Vec<Event> = std::iter::from_fn(|| live.next_pending()).collect();
        let losses = live.losses();
        let polled = PollResult {
            now_ns: live.now_ns(),
            events,
            in_flight: live.in_flight_tables(),
            lost: LostEvents {
                ring: losses.ring,
                in_flight: losses.in_flight,
                comms: losses.comms,
                traced: losses.traced,
                threads: losses.threads,
                sums: losses.sums,
                host_sums: losses.host_sums,
                unreadable: losses.unreadable,
                files: live.deferred_files(),
            },
        };
        if polls.blocking_send(polled).is_err() || has_ended {
            break;
        }
    }
    // The events can be sent while the probes are removed, which can take seconds.
    drop(polls);
    if !keep_probes {
        live.clear();
    }
}

fn log_health(health: &Health) {
    let abilities = &health.abilities;
    tracing::info!(probes = %abilities.mechanism, libraries = health.probed.len(), "watching this host");
    if let Some(reason) = &abilities.no_host {
        tracing::warn!("no kernel evidence, such as time off the CPU: {reason}");
    }
    if let Some(reason) = &health.no_lifecycle {
        tracing::warn!("no process events, so new processes are found every 30 s: {reason}");
    }
}
