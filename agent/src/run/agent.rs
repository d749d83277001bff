//! Aggregation of a live agent: runs the pure host, labels its processes and sends its batches.

use std::path::Path;
use std::sync::Arc;

use fleet_agent_core::batch::{Batch, ResourceReport, VerdictBatch};
use fleet_agent_core::event::{Event, Started};
use fleet_agent_core::host::{Host, Identity, LateProcess, Totals, WallClock};
use fleet_agent_core::pipeline::Ending;
use fleet_agent_core::verdict::State;
use fleet_agent_export::delivery::Outbox;
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::watch::now_ns;
use jiff::Timestamp;

use crate::config::RunArgs;
use crate::gpu::Gpus;
use crate::host_conditions::HostConditions;
use crate::run::PollResult;
use crate::run::captures::Captures;
use crate::run::ras::{Answer, RasQueries, RasTask, ras_queries};
use crate::run::running_operations::RunningOperations;
use crate::run::self_metrics::SelfMetrics;
use crate::run::stacks::StackSampling;

/// Interval of progress points, nanoseconds.
const TICK_NS: u64 = 500_000_000;
/// Interval at which the event clock is compared with wall time, nanoseconds.
const CLOCK_INTERVAL_NS: u64 = 10_000_000_000;

/// Live agent.
pub(super) struct Agent {
    host: Host,
    outbox: Outbox,
    gpus: Gpus,
    processes: Processes,
    conditions: HostConditions,
    ras: Option<RasQueries>,
    stacks: Option<StackSampling>,
    captures: Captures,
    running: RunningOperations,
    self_metrics: Arc<SelfMetrics>,
    clock: WallClock,
    last_tick_ns: u64,
}

impl Agent {
    pub(super) fn new(
        args: &RunArgs,
        node: &str,
        outbox: Outbox,
        self_metrics: Arc<SelfMetrics>,
    ) -> (Self, Option<RasTask>) {
        let identity = Identity {
            cluster: args.cluster.clone(),
            node: node.to_owned(),
            job: args.job.clone(),
            gpu_model: args.gpu_model.clone(),
        };
        let processes = Processes::new("/proc");
        let (ras, task) = ras_queries(&args.ras, identity.clone(), processes.clone()).unzip();
        let captures = Captures::new(&args.ras, processes.clone());
        let running = RunningOperations::new(processes.clone());
        let flush_every_ns = u64::try_from(args.interval.as_nanos()).unwrap_or(u64::MAX);
        let host = Host::new(identity, flush_every_ns);
        let (mut host, clock) = (host.with_report_period(args.report_period), wall_clock());
        host.trace(&[], clock, args.block_rule());
        let agent = Self {
            host,
            outbox,
            gpus: Gpus::open(Path::new("/proc")),
            processes,
            conditions: HostConditions::new(Path::new("/sys")),
            ras,
            stacks: None,
            captures,
            running,
            self_metrics,
            clock,
            last_tick_ns: 0,
        };
        (agent, task)
    }

    /// Has the stacks of late ranks sampled from now on.
    pub(super) fn set_stack_sampling(&mut self, stacks: StackSampling) {
        self.stacks = Some(stacks);
    }

    /// Waits for the next answer of NCCL's RAS subsystem, for ever if there is none.
    pub(super) async fn next_ras_answer(&mut self) -> Answer {
        let answer = match &mut self.ras {
            Some(ras) => ras.next_answer().await,
            None => None,
        };
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    /// Sends what an answer of NCCL's RAS subsystem says about the ranks of this host.
    pub(super) async fn report_ras(&mut self, answer: Answer) {
        let unix_ns = self.clock.unix_ns(now_ns());
        let Some(ras) = &mut self.ras else {
            return;
        };
        for batch in ras.batches(answer, &mut self.host, unix_ns) {
            self.send(Some(batch)).await;
        }
    }

    /// Processes the result of one poll and sends what is due.
    pub(super) async fn ingest(&mut self, polled: PollResult) {
        if let Some(policy) = self.outbox.new_policy() {
            self.self_metrics.record_policy(&policy);
            self.host.apply_policy(&policy);
            if let Some(stacks) = &self.stacks {
                let late = self.host.late_processes(&policy);
                stacks.arm(&late);
                for process in self.host.still_processes(&late, polled.now_ns) {
                    self.captures.request(process, polled.now_ns);
                }
            }
        }
        let mut ended_processes = Vec::new();
        for mut event in polled.events {
            match &mut event {
                Event::Started(started) => self.label(started).await,
                Event::Ended(ended) => {
                    // Processes without a rank are measured as well.
                    if self.conditions.remove_process(ended.pid) {
                        let exit = ended.exit.map(|exit| exit.status.to_string());
                        tracing::info!(pid = ended.pid, exit, "a rank ended");
                    }
                    if let Some(ras) = &mut self.ras {
                        ras.remove_process(ended.pid);
                    }
                    ended_processes.push(*ended);
                }
                _ => {}
            }
            self.self_metrics.record_event(&event);
            if let Some(stacks) = &mut self.stacks {
                stacks.record_event(&event);
            }
            let batch = self.host.on_event(&event);
            self.send(batch).await;
        }
        self.self_metrics.set_lost_events(polled.lost);
        let stacks = self.stacks.as_mut().map(StackSampling::take);
        for sample in stacks.unwrap_or_default() {
            self.host.on_event(&Event::Stack(Box::new(sample)));
        }
        for (resource, files) in self.captures.take() {
            self.host.report_files(resource, files);
        }
        let still_ns = self.host.still(polled.now_ns).collect();
        self.running
            .request(&polled.in_flight, &still_ns, polled.now_ns);
        for own in self.running.take(polled.now_ns) {
            self.host.set_running(own.pid, own.operations, own.since_ns);
        }
        self.tick(polled.now_ns).await;
        if let Some(verdicts) = self.host.take_verdicts() {
            self.report_verdicts(verdicts);
        }
        // After the last verdict of the process, since a process that has ended delays no other.
        for ended in ended_processes {
            let time_ns = self.clock.unix_ns(ended.ts_ns);
            self.self_metrics
                .with_hooks(|hooks| hooks.process_ended(ended.pid, time_ns));
        }
    }

    /// Sends what is left.
    pub(super) async fn finish(mut self) {
        let (last, verdicts) = self.host.finish(Ending::Cut);
        if let Some(verdicts) = verdicts {
            self.report_verdicts(verdicts);
        }
        self.send(last).await;
        let Totals {
            blocks,
            broken_blocks,
            unknown_comm_ops,
            gpu_lost,
        } = self.host.totals();
        let lost_events = self.host.lost_events();
        let lost_gpu_operations = gpu_lost.unsummed();
        tracing::info!(
            blocks,
            broken_blocks,
            unknown_comm_ops,
            lost_events,
            lost_gpu_operations,
            "stopped"
        );
    }

    /// Does what is due at `now_ns`, independent of events.
    async fn tick(&mut self, now_ns: u64) {
        self.host
            .set_waiting_batches(self.outbox.n_waiting() as u64);
        if now_ns.saturating_sub(self.clock.origin_ns) >= CLOCK_INTERVAL_NS {
            self.clock = wall_clock();
            self.host.set_clock(self.clock);
        }
        if self.host.has_processes() && self.conditions.is_due(now_ns) {
            let measured = self.conditions.measure(&self.gpus, &self.processes, now_ns);
            for event in measured.await {
                self.host.on_event(&event);
            }
        }
        if now_ns.saturating_sub(self.last_tick_ns) >= TICK_NS {
            self.last_tick_ns = now_ns;
            if let Some(own) =
                self.self_metrics
                    .take_report(now_ns, self.host.totals(), self.host.n_processes())
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

    /// Labels the process with its GPU.
    async fn label(&mut self, started: &mut Started) {
        let process = started.process;
        let place = self.processes.placement(process.pid).unwrap_or_default();
        if let Some(ras) = &mut self.ras {
            ras.add_process(process.pid, &place);
        }
        let gpu = self.gpus.for_process(process.pid, &place).await;
        self.conditions
            .add_process(process.pid, gpu.as_ref().map(|gpu| gpu.index));
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
        if let Some(mut batch) = batch {
            for report in &mut batch.reports {
                report.program = self.processes.program(report.resource.pid);
            }
            if let (Some(stacks), Some(own)) = (&self.stacks, unranked_with_cause(&batch.reports)) {
                stacks.arm(&[own]);
            }
            self.self_metrics.record_points(batch.n_points() as u64);
            self.outbox.send(batch).await;
        }
    }

    fn report_verdicts(&mut self, batch: VerdictBatch) {
        for own in &batch.resources {
            for verdict in &own.verdicts {
                tracing::info!(rank = own.resource.rank, "{verdict}");
            }
            let is_late = own.verdicts.iter().any(|it| it.state == State::Raised);
            if let Some(stacks) = self.stacks.as_ref().filter(|_| is_late) {
                stacks.arm(&[self.host.late_process(own.resource.pid)]);
            }
        }
        self.self_metrics.with_hooks(|hooks| hooks.publish(&batch));
        self.outbox.send_verdicts(batch);
    }
}

/// Returns the process without a rank that loses most time, since no policy names it. More of them would
/// use up the budget of late ranks.
fn unranked_with_cause(reports: &[ResourceReport]) -> Option<LateProcess> {
    let own = reports.iter().filter(|own| own.resource.rank.is_none());
    // The chain with the largest share comes first.
    let shares = own.filter_map(|own| Some((own.report.chains.first()?.share, own.resource.pid)));
    let (_, pid) = shares.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(LateProcess { pid, peer: None })
}

fn wall_clock() -> WallClock {
    WallClock {
        origin_ns: now_ns(),
        unix_ns: Timestamp::now().as_nanosecond(),
    }
}
