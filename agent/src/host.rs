//! One host as one agent sees it: its processes, its clock, and batches in order. Pure.

mod own;

use std::collections::BTreeMap;

use fleet_proto::policy::PolicySet;

use crate::event::{Event, Process};
use crate::export::{Batch, Resource, ResourcePoints, ResourceVerdicts, VerdictBatch};
use crate::host::own::OwnVerdicts;
use crate::pipeline::{BlockRule, Ending, Pipeline};
use crate::policy::Settings;
use crate::signal::{Point, Value};
use crate::verdict::{Mode, Tally};

/// Points after which a batch is closed.
const BATCH_POINTS: usize = 1000;

/// What all points of a host have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Cluster of the host.
    pub cluster: String,
    /// Name of the host.
    pub node: String,
    /// Job, when it is not to be taken from the communicators.
    pub job: Option<String>,
    /// Model of the GPUs, when known.
    pub gpu_model: Option<String>,
}

/// Where the monotonic clock of a source lies in wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallClock {
    /// An instant of the source's clock, nanoseconds.
    pub origin_ns: u64,
    /// The same instant on the host's wall clock, Unix nanoseconds.
    pub unix_ns: i128,
}

impl WallClock {
    fn unix_ns(self, ts_ns: u64) -> u64 {
        let unix_ns = self.unix_ns + i128::from(ts_ns) - i128::from(self.origin_ns);
        u64::try_from(unix_ns.max(0)).unwrap_or(u64::MAX)
    }
}

/// Follows the processes of one host.
#[derive(Debug)]
pub struct Host {
    identity: Identity,
    clock: WallClock,
    flush_every_ns: u64,
    flushed_ns: u64,
    pipelines: BTreeMap<u32, Pipeline>,
    pending: BTreeMap<u32, Vec<Point>>,
    own: OwnVerdicts,
    tallies: BTreeMap<Mode, Tally>,
    now_ns: u64,
    batches: u64,
    blocks: u64,
    unknown_comm_ops: u64,
}

impl Host {
    /// A host without processes, which closes a batch every `flush_every_ns` of the events' time.
    pub fn new(identity: Identity, flush_every_ns: u64) -> Self {
        Self {
            identity,
            clock: WallClock {
                origin_ns: 0,
                unix_ns: 0,
            },
            flush_every_ns,
            flushed_ns: 0,
            pipelines: BTreeMap::new(),
            pending: BTreeMap::new(),
            own: OwnVerdicts::default(),
            tallies: BTreeMap::new(),
            now_ns: 0,
            batches: 0,
            blocks: 0,
            unknown_comm_ops: 0,
        }
    }

    /// Starts to follow processes whose events are stamped by `clock`, in place of earlier ones.
    pub fn trace(&mut self, processes: &[Process], clock: WallClock, rule: BlockRule) {
        self.clock = clock;
        (self.flushed_ns, self.now_ns) = (clock.origin_ns, clock.origin_ns);
        self.pipelines = processes
            .iter()
            .map(|process| (process.pid, Pipeline::new(*process, rule)))
            .collect();
    }

    /// Sets the GPU model, unless it is known already.
    pub fn learn_gpu_model(&mut self, model: Option<&str>) {
        if self.identity.gpu_model.is_none() {
            self.identity.gpu_model = model.map(str::to_owned);
        }
    }

    /// Takes the next event; a batch when one is due. Events of processes of other hosts are passed over.
    pub fn event(&mut self, event: &Event) -> Option<Batch> {
        self.now_ns = self.now_ns.max(event.ts_ns());
        match event {
            Event::Call(call) => {
                self.pipelines.get_mut(&call.pid)?.call(call);
                self.collect(call.pid);
                self.batch_if_due(call.ts_ns)
            }
            Event::Launches(launches) => {
                self.pipelines.get_mut(&launches.pid)?.launched(launches.n);
                None
            }
            // A switch names threads, and each process knows its own.
            Event::ContextSwitch(switch) => {
                for pipeline in self.pipelines.values_mut() {
                    pipeline.switched(switch);
                }
                None
            }
        }
    }

    /// Lets every process tell how far it has come, if that is due; a batch when one is due.
    ///
    /// The source's shell calls this as time passes, also when no process does anything.
    pub fn beat(&mut self, now_ns: u64) -> Option<Batch> {
        self.now_ns = self.now_ns.max(now_ns);
        let pids: Vec<u32> = self.pipelines.keys().copied().collect();
        for pid in pids {
            if let Some(pipeline) = self.pipelines.get_mut(&pid) {
                pipeline.beat(now_ns);
            }
            self.collect(pid);
        }
        self.batch_if_due(now_ns)
    }

    fn collect(&mut self, pid: u32) {
        let Some(pipeline) = self.pipelines.get_mut(&pid) else {
            return;
        };
        let mut points = pipeline.take_points();
        if points.is_empty() {
            return;
        }
        for point in &mut points {
            to_wall(point, self.clock);
        }
        let job = job(&self.identity, pipeline);
        self.own.observe(pid, job.as_deref(), &points);
        self.pending.entry(pid).or_default().extend(points);
    }

    fn batch_if_due(&mut self, now_ns: u64) -> Option<Batch> {
        let n_points: usize = self.pending.values().map(Vec::len).sum();
        let is_due = now_ns.saturating_sub(self.flushed_ns) >= self.flush_every_ns;
        if is_due {
            self.flushed_ns = now_ns;
        }
        (n_points >= BATCH_POINTS || (is_due && n_points > 0)).then(|| self.batch())
    }

    /// Ends all processes; the last batches, if anything is left.
    pub fn finish(&mut self, ending: Ending) -> (Option<Batch>, Option<VerdictBatch>) {
        let pids: Vec<u32> = self.pipelines.keys().copied().collect();
        for pid in pids {
            if let Some(pipeline) = self.pipelines.get_mut(&pid) {
                pipeline.finish(ending);
                self.blocks += pipeline.blocks();
                self.unknown_comm_ops += pipeline.unknown_comm_ops();
            }
            self.collect(pid);
        }
        let last = (!self.pending.is_empty()).then(|| self.batch());
        let verdicts = self.take_verdicts();
        self.own.end(&mut self.tallies);
        self.pipelines.clear();
        (last, verdicts)
    }

    /// What the processes have come to hold of themselves since the last call, as a batch of its own.
    pub fn take_verdicts(&mut self) -> Option<VerdictBatch> {
        let mut resources = Vec::new();
        for (pid, verdicts) in self.own.take() {
            if let Some(pipeline) = self.pipelines.get(&pid) {
                resources.push(ResourceVerdicts {
                    resource: self.resource(pipeline),
                    verdicts,
                });
            }
        }
        if resources.is_empty() {
            return None;
        }
        // One count for all that this agent sends: the collector tells batches apart by agent and number alone.
        self.batches += 1;
        Some(VerdictBatch {
            number: self.batches,
            resources,
        })
    }

    /// Passes a policy set to the processes.
    pub fn apply(&mut self, set: &PolicySet) {
        self.own.learn(set, self.clock.unix_ns(self.now_ns));
        for pipeline in self.pipelines.values_mut() {
            let role = pipeline.rhythm().profile().map(|profile| profile.role);
            let job = job(&self.identity, pipeline);
            pipeline.apply(Settings::of(set, role, job.as_deref()));
        }
    }

    /// Blocks of the processes that have ended.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Operations of ended processes on communicators made before tracing began.
    pub fn unknown_comm_ops(&self) -> u64 {
        self.unknown_comm_ops
    }

    /// How the ended processes judged themselves, by mode.
    pub fn tallies(&self) -> &BTreeMap<Mode, Tally> {
        &self.tallies
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
        }
    }

    fn resource(&self, pipeline: &Pipeline) -> Resource {
        let Process {
            pid,
            rank,
            world_size,
        } = pipeline.process();
        let identity = &self.identity;
        Resource {
            cluster: identity.cluster.clone(),
            node: identity.node.clone(),
            job: job(identity, pipeline),
            gpu_model: identity.gpu_model.clone(),
            gpu_uuid: None,
            pod: None,
            namespace: None,
            rank,
            world_size,
            pid,
        }
    }
}

fn job(identity: &Identity, pipeline: &Pipeline) -> Option<String> {
    let given = identity.job.clone();
    given.or_else(|| pipeline.job().map(|comm| comm.to_string()))
}

fn to_wall(point: &mut Point, clock: WallClock) {
    point.start_ns = clock.unix_ns(point.start_ns);
    point.time_ns = clock.unix_ns(point.time_ns);
    if let Value::Summary { exemplars, .. } = &mut point.value {
        for exemplar in exemplars {
            exemplar.time_ns = clock.unix_ns(exemplar.time_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_moves_with_the_source_and_never_leaves_its_range() {
        let clock = WallClock {
            origin_ns: 100,
            unix_ns: 5000,
        };
        assert_eq!(clock.unix_ns(130), 5030);
        assert_eq!(clock.unix_ns(90), 4990);
        assert_eq!(
            WallClock {
                origin_ns: 100,
                unix_ns: -10_000
            }
            .unix_ns(130),
            0
        );
        assert_eq!(clock.unix_ns(u64::MAX), u64::MAX);
    }
}
