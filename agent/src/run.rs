//! Watches this host and reports to Echo until it is asked to stop: one thread looks, one task sums up and sends.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use crate::config::RunArgs;
use crate::event::{Event, Started};
use crate::export::delivery::{Delivery, Outbox, WhenFull};
use crate::export::{Batch, Export, VerdictBatch};
use crate::gpu::Gpus;
use crate::host::{Host, Identity, Totals, WallClock};
use crate::pipeline::Ending;
use crate::process::Processes;
use crate::source::live::{Live, Stop};
use crate::watch::{Health, Watch, WatchError, now_ns};

/// Waits for the GPU that are shorter say nothing: the pipeline would drop them.
pub const MIN_WAIT: Duration = Duration::from_nanos(crate::order::BLOCKING_NS);
/// Looks that may wait to be summed up. When they are reached the ring fills, and what does not fit is counted.
const LOOKS_AHEAD: usize = 64;
/// How often processes tell how far they have come, nanoseconds.
const BEAT_NS: u64 = 500_000_000;
/// How often the clock of the events is compared with wall time, nanoseconds.
const CLOCK_NS: u64 = 10_000_000_000;

/// Why an agent cannot run.
#[derive(Debug, Error)]
pub enum RunError {
    /// Nothing can be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A part of the agent ended by a defect.
    #[error("a defect ended a part of the agent ({0}); what it held was not delivered")]
    Broken(#[from] JoinError),
}

/// What one look of the watch saw.
#[derive(Debug)]
struct Seen {
    now_ns: u64,
    events: Vec<Event>,
}

/// Runs until `stop` resolves.
pub async fn run<E: Export>(
    args: &RunArgs,
    exporter: E,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let node = args.node.clone().unwrap_or_else(host_name);
    let watch = Watch::start(&args.watch.settings(MIN_WAIT))?;
    announce(&watch.health());
    let asked = Stop::default();
    let live = Live::new(watch, Processes::below("/proc"), asked.clone());
    let (sender, mut looks) = mpsc::channel(LOOKS_AHEAD);
    let mut tasks = JoinSet::new();
    let keep_probes = args.watch.keep_probes;
    tasks.spawn_blocking(move || look(live, &sender, keep_probes));
    let (outbox, delivery) = Delivery::new(exporter, 20_000, WhenFull::Drop, Duration::MAX);
    tasks.spawn(async move {
        delivery.run().await;
    });
    let mut agent = Agent::new(args, &node, outbox);
    let mut stop = Box::pin(stop);
    loop {
        tokio::select! {
            () = &mut stop, if !asked.is_asked() => asked.ask(),
            seen = looks.recv() => match seen {
                Some(seen) => agent.take(seen).await,
                None => break,
            },
        }
    }
    agent.finish().await;
    while let Some(joined) = tasks.join_next().await {
        joined?;
    }
    Ok(())
}

/// Looks until the source was asked to end, or nobody takes what it sees any more.
fn look(mut live: Live, looks: &mpsc::Sender<Seen>, keep_probes: bool) {
    loop {
        let has_ended = !live.look();
        let events: Vec<Event> = std::iter::from_fn(|| live.pending()).collect();
        let seen = Seen {
            now_ns: live.now_ns(),
            events,
        };
        if looks.blocking_send(seen).is_err() || has_ended {
            break;
        }
    }
    if !keep_probes {
        live.clear();
    }
}

/// The pure part, and what it takes to label and send.
struct Agent {
    host: Host,
    outbox: Outbox,
    gpus: Gpus,
    processes: Processes,
    beaten_ns: u64,
    clock_ns: u64,
}

impl Agent {
    fn new(args: &RunArgs, node: &str, outbox: Outbox) -> Self {
        let identity = Identity {
            cluster: args.cluster.clone(),
            node: node.to_owned(),
            job: args.job.clone(),
            gpu_model: args.gpu_model.clone(),
        };
        let flush_every_ns = u64::try_from(args.interval.as_nanos()).unwrap_or(u64::MAX);
        let mut host = Host::new(identity, flush_every_ns);
        host.trace(&[], wall_clock(), args.block_rule());
        Self {
            host,
            outbox,
            gpus: Gpus::open(Path::new("/proc")),
            processes: Processes::below("/proc"),
            beaten_ns: 0,
            clock_ns: 0,
        }
    }

    async fn take(&mut self, seen: Seen) {
        if let Some(policy) = self.outbox.new_policy() {
            self.host.apply(&policy);
        }
        for mut event in seen.events {
            if let Event::Started(started) = &mut event {
                self.label(started).await;
            }
            let batch = self.host.event(&event);
            self.send(batch).await;
        }
        self.beat(seen.now_ns).await;
        if let Some(verdicts) = self.host.take_verdicts() {
            self.tell(verdicts);
        }
    }

    async fn beat(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.clock_ns) >= CLOCK_NS {
            self.clock_ns = now_ns;
            self.host.set_clock(wall_clock());
        }
        if now_ns.saturating_sub(self.beaten_ns) >= BEAT_NS {
            self.beaten_ns = now_ns;
            let batch = self.host.beat(now_ns);
            self.send(batch).await;
        }
    }

    /// Adds what the driver knows of the process's GPU.
    async fn label(&self, started: &mut Started) {
        let pid = started.process.pid;
        let place = self.processes.place(pid).unwrap_or_default();
        if let Some(gpu) = self.gpus.of(pid, &place).await {
            started.labels.gpu_uuid = gpu.uuid;
            started.labels.gpu_model = gpu.model;
        }
        let process = started.process;
        tracing::info!(
            pid,
            rank = process.rank,
            world_size = process.world_size,
            "following a rank"
        );
    }

    async fn send(&mut self, batch: Option<Batch>) {
        if let Some(batch) = batch {
            self.outbox.send(batch).await;
        }
    }

    fn tell(&mut self, batch: VerdictBatch) {
        for own in &batch.resources {
            for verdict in &own.verdicts {
                tracing::info!(rank = own.resource.rank, "{verdict}");
            }
        }
        self.outbox.tell(batch);
    }

    async fn finish(mut self) {
        let (last, verdicts) = self.host.finish(Ending::Cut);
        if let Some(verdicts) = verdicts {
            self.tell(verdicts);
        }
        self.send(last).await;
        let Totals {
            blocks,
            broken_blocks,
            unknown_comm_ops,
        } = self.host.totals();
        tracing::info!(
            blocks,
            broken_blocks,
            unknown_comm_ops,
            lost_events = self.host.lost_events(),
            "stopped"
        );
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

fn wall_clock() -> WallClock {
    WallClock {
        origin_ns: now_ns(),
        unix_ns: Timestamp::now().as_nanosecond(),
    }
}

fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
