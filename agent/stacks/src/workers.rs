//! Worker processes of a sampled process, such as those that load its data: the lines of their Python
//! programs.

use std::fs;
use std::path::PathBuf;

use fleet_agent_core::event::StackSample;

use crate::mixed::mix;
use crate::namespace::namespace_tid;
use crate::python::PythonReader;
use crate::sums::{Sampled, StackSums};

/// Maximum number of workers of a process that are read.
const MAX_WORKERS: usize = 4;
/// Interval at which they are looked for: a data loader starts new ones for each epoch.
const SEARCH_NS: u64 = 2_000_000_000;
/// Words in the command lines of children that serve Python itself.
const SERVANTS: [&str; 2] = [
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
];

/// Worker processes of one process.
pub(crate) struct Workers {
    pid: u32,
    readers: Vec<Worker>,
    due_ns: u64,
    sums: StackSums,
}

struct Worker {
    pid: u32,
    /// Its id in the innermost namespace.
    own_pid: u32,
    python: PythonReader,
}

impl Workers {
    /// Finds nothing before the first sample.
    pub(crate) fn new(pid: u32) -> Self {
        Self {
            pid,
            readers: Vec::new(),
            due_ns: 0,
            sums: StackSums::default(),
        }
    }

    /// Samples the first thread of each worker once, at `now_ns` of the events' clock.
    pub(crate) fn sample(&mut self, now_ns: u64) {
        if now_ns >= self.due_ns {
            self.due_ns = now_ns.saturating_add(SEARCH_NS);
            self.search();
        }
        for worker in &mut self.readers {
            let lines = worker.python.read(worker.own_pid).unwrap_or_default();
            if lines.is_empty() {
                continue;
            }
            let sampled = Sampled {
                tid: worker.pid,
                call: None,
                is_outside: false,
                is_awaited: false,
                stack: mix(Vec::new(), lines),
            };
            // Without space for another stack, the others are enough.
            let _added = self.sums.add(sampled, now_ns);
        }
    }

    /// Returns the stacks since the last call, as those of the process.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = StackSample> {
        let samples = self.sums.take(self.pid).into_iter();
        samples.map(|sample| StackSample {
            is_worker: true,
            ..sample
        })
    }

    fn search(&mut self) {
        let present = children(self.pid);
        self.readers.retain(|worker| present.contains(&worker.pid));
        for pid in present {
            if self.readers.len() == MAX_WORKERS {
                break;
            }
            let is_known = self.readers.iter().any(|worker| worker.pid == pid);
            // The interpreter of a new process may not be there yet.
            if !is_known && let Ok(python) = PythonReader::open(pid) {
                self.readers.push(Worker {
                    pid,
                    own_pid: namespace_tid(pid, pid).unwrap_or(pid),
                    python,
                });
            }
        }
    }
}

/// Returns the children of a process that run the same program, those with the same command line first: a
/// forked worker has it. Empty where the kernel does not list children (`CONFIG_PROC_CHILDREN`).
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok();
    let tasks = tasks.into_iter().flatten().filter_map(Result::ok);
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    let pids = pids.filter_map(|pid| pid.parse().ok());
    let (program, command) = (program(pid), command_line(pid));
    let mut workers: Vec<(bool, u32)> = pids
        .filter(|child| self::program(*child) == program)
        .filter_map(|child| {
            let own = command_line(child)?;
            let is_servant = SERVANTS.iter().any(|servant| own.contains(servant));
            (!is_servant).then_some((Some(own) != command, child))
        })
        .collect();
    workers.sort_unstable();
    workers.into_iter().map(|(_, child)| child).collect()
}

fn program(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

fn command_line(pid: u32) -> Option<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&words).into_owned())
}
