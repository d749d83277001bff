//! Programs that are sampled.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fleet_agent_core::event::{StackSample, Unprobed};
use fleet_agent_stacks::clock::monotonic_ns;
use fleet_agent_stacks::sampler::Sampler;
use tempfile::TempDir;

/// Time after which a test fails, nanoseconds.
const LIMIT_NS: u64 = 25_000_000_000;

/// Running program, killed on drop.
pub(crate) struct Program {
    child: Child,
    /// Removed after the program.
    _folder: TempDir,
}

impl Program {
    /// Runs a Python program from `train.py`, until it prints its first line.
    pub(crate) fn python(text: &str) -> Self {
        Self::python_with(text, |_| {})
    }

    /// Runs a Python program whose folder is prepared first.
    pub(crate) fn python_with(text: &str, prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let script = folder.path().join("train.py");
        fs::write(&script, text).unwrap();
        let mut command = Command::new("python3");
        command.arg(script).current_dir(folder.path());
        Self::start(command, folder)
    }

    /// Runs a command until it prints its first line.
    pub(crate) fn start(mut command: Command, folder: TempDir) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the program ended");
        Self {
            child,
            _folder: folder,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Samples the first thread until a stack is as expected, and returns this stack's lines.
    pub(crate) fn until(&self, is_expected: impl Fn(&StackSample) -> bool) -> Vec<String> {
        until(self.pid(), self.pid(), is_expected)
    }

    /// Returns the ids of its threads, in the order in which they were started.
    pub(crate) fn tids(&self) -> Vec<u32> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let ids = threads.map(|thread| thread.unwrap().file_name().into_string().unwrap());
        // The kernel lists them in this order. Their numbers begin anew after the largest.
        ids.map(|tid| tid.parse().unwrap()).collect()
    }

    /// Samples a thread until a stack is as expected.
    pub(crate) fn until_in_thread(&self, tid: u32, is_expected: impl Fn(&StackSample) -> bool) {
        until(self.pid(), tid, is_expected);
    }

    /// Samples the first thread so many times and returns its stacks.
    pub(crate) fn samples(&self, n: usize) -> Vec<StackSample> {
        let pid = self.pid();
        let mut sampler = Sampler::open(pid, &[pid]).unwrap();
        for _ in 0..n {
            sampler.sample(monotonic_ns(), &Unprobed).unwrap();
        }
        sampler.take()
    }

    /// Samples the child of the program, which is in a container, in the same way.
    pub(crate) fn until_in_child(&self, is_expected: impl Fn(&StackSample) -> bool) -> Vec<String> {
        let pid = self.inner_pid().unwrap();
        until(pid, pid, is_expected)
    }

    /// Returns the id of the only child of the program.
    fn inner_pid(&self) -> Option<u32> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.trim().parse().ok()
    }
}

fn until(pid: u32, tid: u32, is_expected: impl Fn(&StackSample) -> bool) -> Vec<String> {
    let mut sampler = Sampler::open(pid, &[tid]).unwrap();
    let mut other = Vec::new();
    let end_ns = monotonic_ns() + LIMIT_NS;
    while monotonic_ns() < end_ns {
        sampler.sample(monotonic_ns(), &Unprobed).unwrap();
        let samples = sampler.take();
        if let Some(found) = samples.iter().find(|sample| is_expected(sample)) {
            return found.stack.lines();
        }
        other.extend(samples.into_iter().map(|sample| sample.stack.lines()));
        other.dedup();
    }
    panic!("{:?}: {other:#?}", sampler.limits());
}

impl Drop for Program {
    fn drop(&mut self) {
        let inner = self.inner_pid().map(|pid| pid.to_string());
        if let Some(pid) = inner {
            let _status = Command::new("kill").args(["-9", &pid]).status();
        }
        // It may have ended already.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Returns whether the innermost Python line of a sample is this one.
pub(crate) fn is_at(sample: &StackSample, line: &str) -> bool {
    let innermost = sample.stack.python_line();
    innermost.is_some_and(|frame| frame.to_string() == line)
}
