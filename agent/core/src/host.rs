//! State of one host as seen by its agent: processes, clock, and batches in order. Pure.

mod clock;
mod flushing;
mod late;
mod progress_reports;
mod resources;
mod self_verdicts;
mod totals;

use std::collections::{BTreeMap, BTreeSet};

use fleet_proto::policy::PolicySet;

use crate::batch::{
    AgentCounters, Batch, ResourcePoints, ResourceReport, ResourceVerdicts, VerdictBatch,
};
use crate::event::{Call, Event, Exit, Labels, Process, Started};
use crate::explain::Explainer;
pub use crate::host::clock::WallClock;
use crate::host::flushing::Flushing;
pub use crate::host::late::LateProcess;
use crate::host::resources::job_name;
use crate::host::self_verdicts::SelfVerdicts;
pub use crate::host::totals::Totals;
use crate::pipeline::{BlockRule, Ending, Pipeline};
use crate::policy::Settings;
use crate::signal::Point;
use crate::verdict::{Mode, Tally};

/// Number of points after which a batch is closed.
const BATCH_POINTS: usize = 1000;

/// Attributes that all points of a host share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Cluster of the host.
    pub cluster: String,
    /// Host name.
    pub node: String,
    /// Job, unless it is derived from the communicators.
    pub job: Option<String>,
    /// Model of the GPUs, if known.
    pub gpu_model: Option<String>,
}

#[cfg(test)]
impl Identity {
    fn without_job() -> Self {
        Self {
            cluster: "c".to_owned(),
            node: "n".to_owned(),
            job: None,
            gpu_model: None,
        }
    }
}

/// Processes of one host.
#[derive(Debug)]
pub struct Host {
    identity: Identity,
    clock: WallClock,
    flushing: Flushing,
    rule: BlockRule,
    pipelines: BTreeMap<u32, Pipeline>,
    labels: BTreeMap<u32, Labels>,
    ended: BTreeSet<u32>,
    pending: BTreeMap<u32, Vec<Point>>,
    explainer: Explainer,
    reports: Vec<ResourceReport>,
    self_verdicts: SelfVerdicts,
    tallies: BTreeMap<Mode, Tally>,
    now_ns: u64,
    batches: u64,
    totals: Totals,
    lost_events: u64,
    agent_counters: Option<AgentCounters>,
    reported_ns: Option<u64>,
}

impl Host {
    /// Creates a host without processes that closes a batch every `flush_every_ns` of event time.
    pub fn new(identity: Identity, flush_every_ns: u64) -> Self {
        Self {
            identity,
            clock: WallClock {
                origin_ns: 0,
                unix_ns: 0,
            },
            flushing: Flushing::new(flush_every_ns),
            rule: BlockRule::default(),
            pipelines: BTreeMap::new(),
            labels: BTreeMap::new(),
            ended: BTreeSet::new(),
            pending: BTreeMap::new(),
            explainer: Explainer::new(resources::REPORT_PERIOD),
            reports: Vec::new(),
            self_verdicts: SelfVerdicts::default(),
            tallies: BTreeMap::new(),
            now_ns: 0,
            batches: 0,
            totals: Totals::default(),
            lost_events: 0,
            agent_counters: None,
            reported_ns: None,
        }
    }

    /// Starts to trace processes whose events are stamped by `clock`, replacing earlier ones.
    /// Processes that the source announces later use the same block rule.
    pub fn trace(&mut self, processes: &[Process], clock: WallClock, rule: BlockRule) {
        (self.clock, self.rule) = (clock, rule);
        self.labels.clear();
        self.flushing.flushed(clock.origin_ns);
        self.now_ns = clock.origin_ns;
        self.pipelines = processes
            .iter()
            .map(|process| (process.pid, Pipeline::new(*process, rule)))
            .collect();
        for process in processes {
            self.explainer.add_process(*process, clock.origin_ns);
        }
    }

    /// Updates the mapping from the source's clock to wall time.
    pub fn set_clock(&mut self, clock: WallClock) {
        self.clock = clock;
    }

    /// Sets the GPU model unless it is already known.
    pub fn set_default_gpu_model(&mut self, model: Option<&str>) {
        if self.identity.gpu_model.is_none() {
            self.identity.gpu_model = model.map(str::to_owned);
        }
    }

    /// Processes the next event and returns a batch if one is due. Events of processes on other
    /// hosts are ignored.
    pub fn on_event(&mut self, event: &Event) -> Option<Batch> {
        self.now_ns = self.now_ns.max(event.ts_ns());
        self.explainer.on_event(event);
        match event {
            Event::Started(started) => self.start(started),
            Event::Ended(ended) => self.end(ended.pid, ended.exit),
            Event::Call(call) => self.call(call, Pipeline::on_call),
            Event::Returned(call) => self.call(call, Pipeline::on_return),
            Event::Entered(entered) => {
                self.pipelines.get_mut(&entered.pid)?.on_entry(entered);
                self.collect(entered.pid);
                self.batch_if_due(entered.ts_ns)
            }
            Event::Activity(measured) => {
                self.pipelines
                    .get_mut(&measured.pid)?
                    .on_activity(*measured);
                self.collect(measured.pid);
                None
            }
            Event::Delays(measured) => {
                self.pipelines.get_mut(&measured.pid)?.on_delays(measured);
                self.collect(measured.pid);
                None
            }
            Event::CallDurations(_) | Event::Stack(_) => None,
            Event::GpuOperation(operation) => {
                self.pipelines
                    .get_mut(&operation.pid)?
                    .on_gpu_operation(operation);
                self.collect(operation.pid);
                self.batch_if_due(operation.ts_ns)
            }
            Event::CommState(state) => {
                self.pipelines.get_mut(&state.pid)?.on_comm_state(state);
                None
            }
            Event::Lost(lost) => {
                self.lost_events = self.lost_events.saturating_add(lost.events);
                self.pipelines.values_mut().for_each(Pipeline::on_loss);
                None
            }
            Event::Launches(launches) => {
                self.pipelines
                    .get_mut(&launches.pid)?
                    .on_launches(launches.n);
                None
            }
            // A switch names threads, and each pipeline knows its own.
            Event::ContextSwitch(switch) => {
                for pipeline in self.pipelines.values_mut() {
                    pipeline.on_context_switch(switch);
                }
                None
            }
        }
    }

    /// Records how many closed batches wait to be sent: the next ones are closed later, and are larger.
    pub fn set_waiting_batches(&mut self, batches: u64) {
        self.flushing.set_waiting(batches);
    }

    /// Reports the progress of every process if due and returns a batch if one is due.
    ///
    /// The driver of the source calls this as time passes, even when no process does anything.
    pub fn tick(&mut self, now_ns: u64) -> Option<Batch> {
        self.now_ns = self.now_ns.max(now_ns);
        // Those that have ended are only kept until their last points are sent.
        let live = self
            .pipelines
            .keys()
            .filter(|pid| !self.ended.contains(pid));
        let pids: Vec<u32> = live.copied().collect();
        for pid in pids {
            if let Some(pipeline) = self.pipelines.get_mut(&pid) {
                pipeline.tick(now_ns);
            }
            self.collect(pid);
        }
        self.explain(now_ns);
        if self.flushing.is_idle() && self.has_still_process(now_ns) {
            self.flushing.flushed(now_ns);
            return Some(self.batch());
        }
        self.batch_if_due(now_ns)
    }

    fn start(&mut self, started: &Started) -> Option<Batch> {
        let pid = started.process.pid;
        let last = self.end(pid, None);
        self.forget(pid);
        self.labels.insert(pid, started.labels.clone());
        let pipeline = Pipeline::new(started.process, self.rule);
        self.pipelines.insert(pid, pipeline);
        last
    }

    /// Ends one process and returns all pending points, since they cannot be attributed once the
    /// process is forgotten.
    fn end(&mut self, pid: u32, exit: Option<Exit>) -> Option<Batch> {
        self.pipelines.get_mut(&pid)?.end(exit);
        self.collect_all(pid);
        self.ended.insert(pid);
        self.has_pending().then(|| self.batch())
    }

    fn forget(&mut self, pid: u32) {
        self.ended.remove(&pid);
        self.labels.remove(&pid);
        self.self_verdicts.forget(pid, &mut self.tallies);
        if let Some(pipeline) = self.pipelines.remove(&pid) {
            self.totals.add(&pipeline);
        }
    }

    fn call(&mut self, call: &Call, handler: fn(&mut Pipeline, &Call)) -> Option<Batch> {
        handler(self.pipelines.get_mut(&call.pid)?, call);
        self.collect(call.pid);
        self.batch_if_due(call.ts_ns)
    }

    fn has_pending(&self) -> bool {
        !self.pending.is_empty() || !self.reports.is_empty() || self.agent_counters.is_some()
    }

    fn batch_if_due(&mut self, now_ns: u64) -> Option<Batch> {
        let n_points: usize = self.pending.values().map(Vec::len).sum();
        let is_due = self.flushing.is_due(now_ns);
        if is_due {
            self.flushing.flushed(now_ns);
        }
        (n_points >= BATCH_POINTS || (is_due && self.has_pending())).then(|| self.batch())
    }

    /// Ends all processes and returns the last batches, if anything is left.
    pub fn finish(&mut self, ending: Ending) -> (Option<Batch>, Option<VerdictBatch>) {
        let pids: Vec<u32> = self.pipelines.keys().copied().collect();
        for pid in pids {
            if let Some(pipeline) = self.pipelines.get_mut(&pid) {
                pipeline.finish(ending);
            }
            self.collect_all(pid);
        }
        let last = self.has_pending().then(|| self.batch());
        let verdicts = self.take_verdicts();
        let pids: Vec<u32> = self.pipelines.keys().copied().collect();
        for pid in pids {
            self.forget(pid);
        }
        (last, verdicts)
    }

    /// Returns the self-verdicts since the last call, as a batch of their own.
    pub fn take_verdicts(&mut self) -> Option<VerdictBatch> {
        let mut resources = Vec::new();
        for (pid, verdicts) in self.self_verdicts.take_verdicts() {
            if let Some(pipeline) = self.pipelines.get(&pid) {
                resources.push(ResourceVerdicts {
                    resource: self.resource(pipeline),
                    verdicts,
                });
            }
        }
        let is_sent = |pid: &u32| !self.pending.contains_key(pid);
        let ended: Vec<u32> = self
            .ended
            .iter()
            .filter(|pid| is_sent(pid))
            .copied()
            .collect();
        for pid in ended {
            self.forget(pid);
        }
        if resources.is_empty() {
            return None;
        }
        // Points and verdicts share one sequence: the collector identifies batches by agent and
        // number.
        self.batches += 1;
        Some(VerdictBatch {
            number: self.batches,
            resources,
        })
    }

    /// Applies a policy set to all processes.
    pub fn apply_policy(&mut self, set: &PolicySet) {
        self.self_verdicts
            .set_policy(set, self.clock.unix_ns(self.now_ns));
        for pipeline in self.pipelines.values_mut() {
            let role = pipeline.iteration_pattern().role();
            let labels = self.labels.get(&pipeline.process().pid);
            let job = job_name(&self.identity, labels, pipeline);
            pipeline.apply_settings(Settings::for_process(set, role, job.as_deref()));
        }
    }

    /// Returns the sums over all processes, ended ones included.
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals;
        self.pipelines
            .values()
            .for_each(|pipeline| totals.add(pipeline));
        totals
    }

    /// Returns the number of events that the source lost, as far as it could count.
    pub fn lost_events(&self) -> u64 {
        self.lost_events
    }

    /// Returns the number of traced processes.
    pub fn n_processes(&self) -> usize {
        self.pipelines.len()
    }

    /// Returns the self-verdict tallies of ended processes, by mode.
    pub fn tallies(&self) -> &BTreeMap<Mode, Tally> {
        &self.tallies
    }

    /// Adds increases of the agent's own counters to the next batch.
    pub fn report_counters(&mut self, counts: Vec<(&'static str, u64)>) {
        let time_ns = self.clock.unix_ns(self.now_ns);
        let start_ns = self.reported_ns.replace(time_ns).unwrap_or(time_ns);
        let Identity { cluster, node, .. } = self.identity.clone();
        let period = AgentCounters {
            cluster,
            node,
            start_ns,
            time_ns,
            counts,
        };
        match &mut self.agent_counters {
            Some(unsent) => unsent.extend(period),
            None => self.agent_counters = Some(period),
        }
    }

    fn batch(&mut self) -> Batch {
        self.batches += 1;
        let mut resources = Vec::new();
        for (pid, points) in std::mem::take(&mut self.pending) {
            let Some(pipeline) = self.pipelines.get(&pid) else {
                continue;
            };
            resources.push(ResourcePoints {
                resource: self.resource(pipeline),
                points,
            });
        }
        Batch {
            number: self.batches,
            resources,
            reports: std::mem::take(&mut self.reports),
            agent_counters: self.agent_counters.take(),
        }
    }
}
