//! Watches this host and reports to Echo until it is asked to stop: one thread looks, one task sums up, one sends.

mod agent;
mod host_conditions;
mod self_metrics;

use std::sync::Arc;
use std::time::Duration;

use fleet_agent_core::event::Event;
use fleet_agent_core::vitals::LostEvents;
use fleet_agent_export::Forward;
use fleet_agent_export::sender::Sender;
use fleet_agent_export::spool::SpoolError;
use fleet_agent_sources::live::{Live, Stop};
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::watch::{Health, Watch, WatchError};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use crate::config::RunArgs;
use crate::hooks::{HookError, HookServer};
use crate::metrics::{MetricsError, MetricsServer};
use crate::run::agent::Agent;
use crate::run::self_metrics::Doing;

/// Synchronisations that are shorter are not told: there was nothing to wait for, and some programs ask all the time. Those of a
/// rank that comes late to every collective are short, but not as short as this.
pub const MIN_WAIT: Duration = Duration::from_micros(10);
/// Looks that may wait to be summed up. When they are reached the ring fills, and what does not fit is counted.
const LOOKS_AHEAD: usize = 64;
/// How long what waits may take to be sent at the end. Kubernetes gives a pod half a minute.
const FLUSH: Duration = Duration::from_secs(5);

/// Why an agent cannot run.
#[derive(Debug, Error)]
pub enum RunError {
    /// Nothing can be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// Points cannot wait on disk.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The socket for hooks cannot be served.
    #[error(transparent)]
    Hooks(#[from] HookError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A part of the agent ended by a defect.
    #[error("a defect ended a part of the agent ({0}); what it held was not delivered")]
    Broken(#[from] JoinError),
}

/// What one look of the watch saw.
#[derive(Debug)]
struct Seen {
    now_ns: u64,
    events: Vec<Event>,
    lost: LostEvents,
}

/// Runs until `stop` resolves, as `node`.
pub async fn run<E: Forward>(
    args: &RunArgs,
    node: &str,
    exporter: E,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    // What can be refused comes first: a probe that is set is felt by the jobs of the host.
    let spool = args.sender.open_spool()?;
    let hooks = match &args.hook_socket {
        Some(path) => Some(HookServer::bind(path).await?),
        None => None,
    };
    let metrics = match args.metrics_listen {
        Some(address) => {
            let token = args.metrics_token_file.as_deref();
            Some(MetricsServer::bind(address, token).await?)
        }
        None => None,
    };
    let watch = Watch::start(&args.watch.settings(MIN_WAIT))?;
    announce(&watch.health());

    let (outbox, finish, sender) = Sender::new(exporter, args.sender.settings(), spool);
    let doing = Arc::new(Doing::new(
        sender.vitals(),
        hooks.as_ref().map(HookServer::hooks),
    ));
    let agent = Agent::new(args, node, outbox, Arc::clone(&doing));
    let mut tasks = JoinSet::new();
    tasks.spawn(async {
        sender.run().await;
    });
    let (ending, ended) = watch::channel(());
    let over = |mut ended: watch::Receiver<()>| async move {
        // The other end is never sent to: it goes when all is over.
        let _gone = ended.changed().await;
    };
    if let Some(hooks) = hooks {
        tasks.spawn(hooks.serve(over(ended.clone())));
    }
    if let Some(metrics) = metrics {
        tasks.spawn(metrics.serve(move || doing.vitals(), over(ended)));
    }
    follow(
        agent,
        watch,
        (args.watch.keep_probes, stop),
        &mut tasks,
        || finish.within(FLUSH),
    )
    .await;
    drop(ending);
    while let Some(joined) = tasks.join_next().await {
        joined?;
    }
    Ok(())
}

/// Passes what the watch sees to the agent until `stop` resolves.
async fn follow(
    mut agent: Agent,
    watch: Watch,
    (keep_probes, stop): (bool, impl Future<Output = ()>),
    tasks: &mut JoinSet<()>,
    finish: impl FnOnce(),
) {
    let stop_request = Stop::default();
    let live = Live::new(watch, Processes::new("/proc"), stop_request.clone());
    let (sender, mut looks) = mpsc::channel(LOOKS_AHEAD);
    tasks.spawn_blocking(move || look(live, sender, keep_probes));
    let mut stop = Box::pin(stop);
    loop {
        tokio::select! {
            () = &mut stop, if !stop_request.is_requested() => stop_request.request(),
            seen = looks.recv() => match seen {
                Some(seen) => agent.take(seen).await,
                None => break,
            },
        }
    }
    finish();
    agent.finish().await;
}

/// Looks until the source was asked to end, or nobody takes what it sees any more.
fn look(mut live: Live, looks: mpsc::Sender<Seen>, keep_probes: bool) {
    loop {
        let has_ended = !live.poll();
        let events: Vec<Event> = std::iter::from_fn(|| live.next_pending()).collect();
        let losses = live.losses();
        let seen = Seen {
            now_ns: live.now_ns(),
            events,
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
        if looks.blocking_send(seen).is_err() || has_ended {
            break;
        }
    }
    // What was seen can be sent while the probes are taken out, which may take seconds.
    drop(looks);
    if !keep_probes {
        live.clear();
    }
}

fn announce(health: &Health) {
    let abilities = &health.abilities;
    tracing::info!(probes = %abilities.mechanism, libraries = health.probed.len(), "watching this host");
    if let Some(reason) = &abilities.no_host {
        tracing::warn!("no evidence from the kernel, such as time off the CPU: {reason}");
    }
    if let Some(reason) = &health.no_lifecycle {
        tracing::warn!("new processes are found every 30 s only: {reason}");
    }
}
