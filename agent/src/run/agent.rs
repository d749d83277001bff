//! The pure part of an agent, and what it takes to label and send what comes out of it.

use std::path::Path;
use std::sync::Arc;

use fleet_agent_core::batch::{Batch, VerdictBatch};
use fleet_agent_core::event::{Event, Started};
use fleet_agent_core::host::{Host, Identity, Totals, WallClock};
use fleet_agent_core::pipeline::Ending;
use fleet_agent_export::delivery::Outbox;
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::watch::now_ns;
use jiff::Timestamp;

use crate::config::RunArgs;
use crate::gpu::Gpus;
use crate::run::Seen;
use crate::run::host_conditions::Ambient;
use crate::run::self_metrics::Doing;

/// How often processes tell how far they have come, nanoseconds.
const BEAT_NS: u64 = 500_000_000;
/// How often the clock of the events is compared with wall time, nanoseconds.
const CLOCK_NS: u64 = 10_000_000_000;

/// One agent at work.
pub(super) struct Agent {
    host: Host,
    outbox: Outbox,
    gpus: Gpus,
    processes: Processes,
    ambient: Ambient,
    doing: Arc<Doing>,
    clock: WallClock,
    beaten_ns: u64,
}

impl Agent {
    pub(super) fn new(args: &RunArgs, node: &str, outbox: Outbox, doing: Arc<Doing>) -> Self {
        let identity = Identity {
            cluster: args.cluster.clone(),
            node: node.to_owned(),
            job: args.job.clone(),
            gpu_model: args.gpu_model.clone(),
        };
        let flush_every_ns = u64::try_from(args.interval.as_nanos()).unwrap_or(u64::MAX);
        let (mut host, clock) = (Host::new(identity, flush_every_ns), wall_clock());
        host.trace(&[], clock, args.block_rule());
        Self {
            host,
            outbox,
            gpus: Gpus::open(Path::new("/proc")),
            processes: Processes::new("/proc"),
            ambient: Ambient::below(Path::new("/sys")),
            doing,
            clock,
            beaten_ns: 0,
        }
    }

    /// Takes what one look saw, and sends what is due.
    pub(super) async fn take(&mut self, seen: Seen) {
        if let Some(policy) = self.outbox.new_policy() {
            self.doing.obey(&policy);
            self.host.apply_policy(&policy);
        }
        let mut gone = Vec::new();
        for mut event in seen.events {
            match &mut event {
                Event::Started(started) => self.label(started).await,
                Event::Ended(ended) => {
                    tracing::info!(pid = ended.pid, "a rank ended");
                    self.ambient.left(ended.pid);
                    gone.push(*ended);
                }
                _ => {}
            }
            self.doing.saw(&event);
            let batch = self.host.on_event(&event);
            self.send(batch).await;
        }
        self.doing.lost(seen.lost);
        self.beat(seen.now_ns).await;
        if let Some(verdicts) = self.host.take_verdicts() {
            self.tell(verdicts);
        }
        // After its last verdict: whoever is gone holds nobody up.
        for ended in gone {
            let time_ns = self.clock.unix_ns(ended.ts_ns);
            self.doing.hooks(|hooks| hooks.gone(ended.pid, time_ns));
        }
    }

    /// Sends what is left.
    pub(super) async fn finish(mut self) {
        let (last, verdicts) = self.host.finish(Ending::Cut);
        if let Some(verdicts) = verdicts {
            self.tell(verdicts);
        }
        self.send(last).await;
        let Totals {
            blocks,
            broken_blocks,
            unknown_comm_ops,
            gpu_lost: _,
        } = self.host.totals();
        let lost_events = self.host.lost_events();
        tracing::info!(
            blocks,
            broken_blocks,
            unknown_comm_ops,
            lost_events,
            "stopped"
        );
    }

    /// What is due as time passes, whether or not any process does anything.
    async fn beat(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.clock.origin_ns) >= CLOCK_NS {
            self.clock = wall_clock();
            self.host.set_clock(self.clock);
        }
        if self.ambient.is_due(now_ns) {
            for measured in self.ambient.measure(&self.gpus, now_ns).await {
                self.host.on_event(&Event::Activity(measured));
            }
        }
        if now_ns.saturating_sub(self.beaten_ns) >= BEAT_NS {
            self.beaten_ns = now_ns;
            if let Some(own) = self
                .doing
                .due(now_ns, (self.host.totals(), self.host.n_processes()))
            {
                self.host.report_counters(own);
            }
            let processes = &self.processes;
            self.host
                .set_stopped(|pid| processes.is_stopped(pid).unwrap_or(false));
            let batch = self.host.tick(now_ns);
            self.send(batch).await;
        }
    }

    /// Adds what the driver knows of the process's GPU.
    async fn label(&mut self, started: &mut Started) {
        let process = started.process;
        let place = self.processes.placement(process.pid).unwrap_or_default();
        let gpu = self.gpus.of(process.pid, &place).await;
        self.ambient
            .came(process.pid, gpu.as_ref().map(|gpu| gpu.index));
        if let Some(gpu) = gpu {
            started.labels.gpu_uuid = gpu.uuid;
            started.labels.gpu_model = gpu.model;
        }
        tracing::info!(
            pid = process.pid,
            rank = process.rank,
            world_size = process.world_size,
            job = started.labels.job.as_deref(),
            gpu = started.labels.gpu_uuid.as_deref(),
            "following a rank"
        );
    }

    async fn send(&mut self, batch: Option<Batch>) {
        if let Some(batch) = batch {
            self.doing.made(batch.n_points() as u64);
            self.outbox.send(batch).await;
        }
    }

    fn tell(&mut self, batch: VerdictBatch) {
        for own in &batch.resources {
            for verdict in &own.verdicts {
                tracing::info!(rank = own.resource.rank, "{verdict}");
            }
        }
        self.doing.hooks(|hooks| hooks.tell(&batch));
        self.outbox.tell(batch);
    }
}

fn wall_clock() -> WallClock {
    WallClock {
        origin_ns: now_ns(),
        unix_ns: Timestamp::now().as_nanosecond(),
    }
}
