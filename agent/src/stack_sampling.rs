//! Stacks of the processes that are explained or recorded.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_core::event::{CallDurations, CallProbes, Event, StackSample};
use fleet_agent_stacks::sampler::Sampler;
use fleet_agent_stacks::short_calls::{makes_graphs, read_short_calls};

/// Maximum number of threads of a process that are sampled.
const MAX_THREADS: usize = 4;
/// Maximum number of processes that are sampled.
const MAX_PROCESSES: usize = 64;

/// Sampling of processes, each in the threads that call the GPU's libraries.
#[derive(Debug, Default)]
pub(crate) struct StackSampling {
    processes: BTreeMap<u32, Process>,
    limits: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Process {
    threads: BTreeSet<u32>,
    /// Whether it made GPU graphs in the last period.
    makes_graphs: bool,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// To be opened, with the threads known so far.
    #[default]
    New,
    Sampled(Box<Sampler>),
    Failed,
}

impl StackSampling {
    /// Takes in an event, which can tell of a process or of a thread.
    pub(crate) fn on_event(&mut self, event: &Event) {
        let (pid, tid) = match event {
            Event::Call(call) => (call.pid, call.tid),
            Event::Entered(entered) => (entered.pid, entered.tid),
            Event::CallDurations(durations) => {
                self.on_durations(durations);
                return;
            }
            Event::Ended(ended) => {
                self.remove(ended.pid);
                return;
            }
            _ => return,
        };
        self.add(pid, tid);
    }

    /// Takes in the calls of a process in a period.
    pub(crate) fn on_durations(&mut self, durations: &CallDurations) {
        self.add(durations.pid, durations.pid);
        if let Some(process) = self.processes.get_mut(&durations.pid) {
            process.makes_graphs = makes_graphs(durations);
        }
    }

    /// Adds a thread that calls the GPU's libraries.
    pub(crate) fn add(&mut self, pid: u32, tid: u32) {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            return;
        }
        let process = self.processes.entry(pid).or_default();
        if process.threads.len() < MAX_THREADS && process.threads.insert(tid) {
            process.state = State::New;
        }
    }

    /// Removes a process.
    pub(crate) fn remove(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Samples each process once, with what probes know of its calls.
    pub(crate) fn sample(&mut self, now_ns: u64, probes: &impl CallProbes) {
        for (pid, process) in &mut self.processes {
            if matches!(process.state, State::New) {
                process.state = open(*pid, &process.threads, &mut self.limits);
            }
            if let State::Sampled(sampler) = &mut process.state
                && sampler.sample(now_ns, probes).is_err()
            {
                // A process that cannot be read any more is about to end.
                process.state = State::Failed;
            }
        }
        let processes = self.processes.values_mut();
        let make_graphs = processes.filter(|process| process.makes_graphs);
        let mut samplers: Vec<_> = make_graphs.filter_map(Process::sampler).collect();
        read_short_calls(&mut samplers, probes);
    }

    /// Returns the stacks since the last call.
    pub(crate) fn take(&mut self) -> Vec<StackSample> {
        let samplers = self.processes.values_mut().filter_map(Process::sampler);
        samplers.flat_map(Sampler::take).collect()
    }

    /// Returns what could not be sampled.
    pub(crate) fn limits(&self) -> impl Iterator<Item = &String> {
        self.limits.iter()
    }
}

impl Process {
    fn sampler(&mut self) -> Option<&mut Sampler> {
        match &mut self.state {
            State::Sampled(sampler) => Some(sampler),
            State::New | State::Failed => None,
        }
    }
}

fn open(pid: u32, threads: &BTreeSet<u32>, limits: &mut BTreeSet<String>) -> State {
    let threads: Vec<u32> = threads.iter().copied().collect();
    match Sampler::open(pid, &threads) {
        Ok(sampler) => {
            limits.extend(sampler.limits());
            State::Sampled(Box::new(sampler))
        }
        Err(error) => {
            limits.insert(error.to_string());
            State::Failed
        }
    }
}
