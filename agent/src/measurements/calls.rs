//! Calls of CUDA, HIP and NCCL by process: counts, durations, bytes, and the life of graphs.

use std::collections::{BTreeMap, VecDeque};

use fleet_agent_core::event::{
    Activity, CallDurations, Direction, Event, FunctionDurations, LaunchSizes, LogHistogram,
    Started,
};
use fleet_agent_core::measurement::{Attribute, Distribution, Kind, Octaves, Value};
use fleet_agent_sources::functions::{self, Effect, GraphChange};
use fleet_agent_sources::process::Processes;

use crate::measurements::{MeasurementSet, Metric, process};

/// Time over which percentiles are taken, nanoseconds.
const WINDOW_NS: u64 = 60_000_000_000;
/// Resolution of that time, nanoseconds.
const SLOT_NS: u64 = 10_000_000_000;
/// Time for which the counters of an ended process are kept, nanoseconds, so that they are read
/// once more.
const KEEP_NS: u64 = 60_000_000_000;
/// Maximum number of processes, with those that have ended.
const MAX_PROCESSES: usize = 1024;

const PERCENTILES: [(u8, &str); 3] = [(50, "0.5"), (95, "0.95"), (99, "0.99")];

const DURATION: Metric = Metric {
    name: "gpu.call.duration",
    description: "Duration of library calls",
    unit: "s",
    kind: Kind::Histogram,
};
const QUANTILE: Metric = Metric {
    name: "gpu.call.duration.quantile",
    description: "Percentiles of the duration of library calls in the last minute",
    unit: "s",
    kind: Kind::Gauge,
};
const LAUNCHES: Metric = Metric {
    name: "gpu.kernel.launch.calls",
    description: "Kernel launches",
    unit: "{call}",
    kind: Kind::Counter,
};
const GRID: Metric = Metric {
    name: "gpu.kernel.grid.size",
    description: "Thread blocks of sampled kernel launches",
    unit: "{block}",
    kind: Kind::Histogram,
};
const BLOCK: Metric = Metric {
    name: "gpu.kernel.block.size",
    description: "Threads of a block of sampled kernel launches",
    unit: "{thread}",
    kind: Kind::Histogram,
};
const ALLOCATIONS: Metric = Metric {
    name: "gpu.memory.allocations",
    description: "Memory requested by allocations that succeeded",
    unit: "By",
    kind: Kind::Counter,
};
const COPIES: Metric = Metric {
    name: "gpu.memory.copies",
    description: "Memory copied",
    unit: "By",
    kind: Kind::Counter,
};
const GRAPHS: Metric = Metric {
    name: "gpu.graph.operations",
    description: "Steps in the life of CUDA and HIP graphs",
    unit: "{operation}",
    kind: Kind::Counter,
};

/// Counters of all processes.
#[derive(Debug, Default)]
pub(super) struct CallMeter(BTreeMap<u32, Process>);

/// Counters of a process.
#[derive(Debug, Default)]
struct Process {
    attributes: Vec<Attribute>,
    since_ns: u64,
    ended_ns: Option<u64>,
    functions: BTreeMap<String, Function>,
    sizes: LaunchSizes,
    /// Counted at the entry of the calls; functions that are measured are in `functions` as well.
    counted: Activity,
}

#[derive(Debug, Default)]
struct Function {
    total: FunctionDurations,
    /// Parts of the window with their numbers, oldest first.
    recent: VecDeque<(u64, LogHistogram)>,
}

impl CallMeter {
    /// Counts an event.
    pub(super) fn record_event(&mut self, event: &Event, processes: &Processes) {
        match event {
            Event::Started(started) => self.start(started, processes),
            Event::CallDurations(durations) => {
                self.process(durations.pid, durations.ts_ns, processes)
                    .add(durations);
            }
            Event::Activity(measured) => {
                if let Some(process) = self.0.get_mut(&measured.pid) {
                    process.counted.add(&measured.activity);
                }
            }
            Event::Ended(ended) => {
                if let Some(process) = self.0.get_mut(&ended.pid) {
                    process.ended_ns = Some(ended.ts_ns);
                }
            }
            _ => {}
        }
    }

    fn start(&mut self, started: &Started, processes: &Processes) {
        let pid = started.process.pid;
        let placement = processes.placement(pid).ok();
        let attributes = process::of_rank(started, placement.as_ref());
        // What a process did before it joined its job is not counted twice.
        if self
            .0
            .get(&pid)
            .is_none_or(|known| known.ended_ns.is_some())
        {
            self.insert(pid, started.ts_ns, attributes);
        } else if let Some(known) = self.0.get_mut(&pid) {
            known.attributes = attributes;
        }
    }

    /// Returns a process; one that is not known has no rank.
    fn process(&mut self, pid: u32, ts_ns: u64, processes: &Processes) -> &mut Process {
        if self
            .0
            .get(&pid)
            .is_none_or(|known| known.ended_ns.is_some())
        {
            let placement = processes.placement(pid).ok();
            self.insert(pid, ts_ns, process::of_process(pid, placement.as_ref()));
        }
        self.0.entry(pid).or_default()
    }

    fn insert(&mut self, pid: u32, since_ns: u64, attributes: Vec<Attribute>) {
        if self.0.len() >= MAX_PROCESSES {
            let ended = self
                .0
                .iter()
                .filter(|(_, process)| process.ended_ns.is_some());
            let oldest = ended.min_by_key(|(_, process)| process.ended_ns);
            // Running processes are bounded by what the kernel traces.
            if let Some(oldest) = oldest.map(|(pid, _)| *pid) {
                self.0.remove(&oldest);
            }
        }
        let process = Process {
            attributes,
            since_ns,
            ..Process::default()
        };
        self.0.insert(pid, process);
    }

    /// Adds the measurements of all processes, and forgets those that ended long ago.
    pub(super) fn measure(&mut self, now_ns: u64, set: &mut MeasurementSet) {
        let is_kept = |process: &Process| {
            let ended_ns = process.ended_ns.unwrap_or(now_ns);
            now_ns.saturating_sub(ended_ns) <= KEEP_NS
        };
        self.0.retain(|_, process| is_kept(process));
        for process in self.0.values() {
            process.measure_functions(now_ns, set);
            process.measure_launches(set);
            process.measure_memory(set);
            process.measure_graphs(set);
        }
    }
}

impl Process {
    fn add(&mut self, durations: &CallDurations) {
        let slot = durations.ts_ns / SLOT_NS;
        for calls in &durations.calls {
            let function = self.functions.entry(calls.label()).or_default();
            function.add(slot, calls);
        }
        if let Some(sizes) = &durations.launch_sizes {
            self.sizes.merge(sizes);
        }
    }

    /// Returns the attributes of a point of this process.
    fn with(&self, more: impl IntoIterator<Item = Attribute>) -> Vec<Attribute> {
        self.attributes.iter().cloned().chain(more).collect()
    }

    /// Returns the functions with an effect.
    fn with_effect(&self, is_wanted: impl Fn(Effect) -> bool) -> impl Iterator<Item = &Function> {
        self.functions.values().filter(move |function| {
            functions::by_name(&function.total.function)
                .is_some_and(|known| is_wanted(known.effect))
        })
    }

    fn push(
        &self,
        set: &mut MeasurementSet,
        metric: Metric,
        more: impl IntoIterator<Item = Attribute>,
        value: Value,
    ) {
        let since_ns = match metric.kind {
            Kind::Gauge => 0,
            Kind::Counter | Kind::Histogram => self.since_ns,
        };
        set.push(metric, since_ns, self.with(more), value);
    }

    fn measure_functions(&self, now_ns: u64, set: &mut MeasurementSet) {
        for function in self.functions.values() {
            let total = &function.total;
            let attributes = function_attributes(total);
            let value = Value::Distribution(Distribution {
                histogram: total.histogram.clone(),
                total: total.total_ns,
                scale: 1e-9,
                octaves: Octaves {
                    first: 10,
                    last: 34,
                },
            });
            self.push(set, DURATION, attributes.clone(), value);
            let recent = function.recent(now_ns);
            for (percent, quantile) in PERCENTILES {
                if let Some(ns) = recent.percentile(percent) {
                    let quantile = Attribute::text("quantile", quantile);
                    let attributes = attributes.iter().cloned().chain([quantile]);
                    let seconds = Value::Number(seconds(ns.min(total.longest_ns)));
                    self.push(set, QUANTILE, attributes, seconds);
                }
            }
        }
    }

    fn measure_launches(&self, set: &mut MeasurementSet) {
        let launches = self.with_effect(|effect| effect == Effect::Launches);
        let measured: u64 = launches.map(|function| function.total.calls()).sum();
        let calls = Some(measured).filter(|calls| *calls > 0);
        if let Some(calls) = calls.or(self.counted.launches) {
            self.push(set, LAUNCHES, [], Value::Count(calls));
        }
        let LaunchSizes {
            grid,
            block,
            grid_total,
            block_total,
        } = &self.sizes;
        for (metric, histogram, total, last) in [
            (GRID, grid, grid_total, 32),
            (BLOCK, block, block_total, 11),
        ] {
            if !histogram.is_empty() {
                let value = Value::Distribution(Distribution {
                    histogram: histogram.clone(),
                    total: *total,
                    scale: 1.0,
                    octaves: Octaves { first: 1, last },
                });
                self.push(set, metric, [], value);
            }
        }
    }

    fn measure_memory(&self, set: &mut MeasurementSet) {
        for function in self.with_effect(|effect| effect == Effect::Allocates) {
            let attributes = function_attributes(&function.total);
            let bytes = Value::Count(function.total.bytes);
            self.push(set, ALLOCATIONS, attributes, bytes);
        }
        let mut copied: BTreeMap<&'static str, u64> = BTreeMap::new();
        for function in self.with_effect(|effect| effect == Effect::Copies) {
            if let Some(direction) = function.total.direction {
                *copied.entry(kind(direction)).or_default() += function.total.bytes;
            }
        }
        if let Some(counted) = self.counted.memcpy_bytes.filter(|_| copied.is_empty()) {
            copied = BTreeMap::from([
                (kind(Direction::ToDevice), counted.to_device),
                (kind(Direction::ToHost), counted.to_host),
                (kind(Direction::Unspecified), counted.unspecified),
            ]);
        }
        for (kind, bytes) in copied {
            let kind = Attribute::text("cuda.memcpy.kind", kind);
            self.push(set, COPIES, [kind], Value::Count(bytes));
        }
    }

    fn measure_graphs(&self, set: &mut MeasurementSet) {
        let mut operations: BTreeMap<&'static str, u64> = BTreeMap::new();
        for function in self.functions.values() {
            let known = functions::by_name(&function.total.function);
            let name = match known.map(|known| known.effect) {
                Some(Effect::LaunchesGraph) => "launch",
                Some(Effect::ChangesGraph(change)) => operation(change),
                _ => continue,
            };
            *operations.entry(name).or_default() += function.total.calls();
        }
        if let Some(launches) = self.counted.graph_launches {
            operations.entry("launch").or_insert(launches);
        }
        for (name, n) in operations {
            let name = Attribute::text("gpu.graph.operation", name);
            self.push(set, GRAPHS, [name], Value::Count(n));
        }
    }
}

impl Function {
    fn add(&mut self, slot: u64, calls: &FunctionDurations) {
        if self.total.function.is_empty() {
            self.total.function.clone_from(&calls.function);
            self.total.direction = calls.direction;
        }
        self.total.merge(calls);
        match self.recent.back_mut() {
            Some((last, histogram)) if *last == slot => histogram.merge(&calls.histogram),
            _ => self.recent.push_back((slot, calls.histogram.clone())),
        }
        while self.recent.len() as u64 > WINDOW_NS / SLOT_NS {
            self.recent.pop_front();
        }
    }

    /// Returns the calls of the window that ends now.
    fn recent(&self, now_ns: u64) -> LogHistogram {
        let first = now_ns.saturating_sub(WINDOW_NS) / SLOT_NS;
        let mut sum = LogHistogram::default();
        for (slot, histogram) in &self.recent {
            if *slot >= first {
                sum.merge(histogram);
            }
        }
        sum
    }
}

fn function_attributes(calls: &FunctionDurations) -> Vec<Attribute> {
    let name = Attribute::text("gpu.call.function", calls.function.clone());
    let direction = calls.direction;
    let direction = direction.map(|direction| Attribute::text("cuda.memcpy.kind", kind(direction)));
    [name].into_iter().chain(direction).collect()
}

/// Returns the direction of a copy as an attribute.
const fn kind(direction: Direction) -> &'static str {
    match direction {
        Direction::ToDevice => "host_to_device",
        Direction::ToHost => "device_to_host",
        Direction::WithinDevice => "device_to_device",
        Direction::Unspecified => "unspecified",
    }
}

const fn operation(change: GraphChange) -> &'static str {
    match change {
        GraphChange::BeginCapture => "begin_capture",
        GraphChange::EndCapture => "end_capture",
        GraphChange::Instantiate => "instantiate",
        GraphChange::Update => "update",
        GraphChange::Destroy => "destroy",
    }
}

fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

#[cfg(test)]
mod tests;
