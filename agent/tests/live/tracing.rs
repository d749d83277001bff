//! Running command that reports on processes until it is stopped.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fixture::agent;
use crate::job::assert_no_failures;

/// Running `trace`, `explain` or `record`, killed on drop.
pub(crate) struct Watching {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Watching {
    /// Starts a command of the agent with JSON output.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = agent()
            .args(arguments)
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Returns the next report; the runner ends a test that never gets one.
    pub(crate) fn next(&mut self) -> Value {
        assert_no_failures();
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended");
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the first report of a process with a cause.
    pub(crate) fn until(&mut self, pid: u32, cause: &str) -> Value {
        let mut reports = std::iter::repeat_with(|| self.next_of(pid));
        let has_cause = |report: &Value| chain(report, cause).is_some();
        reports.find(has_cause).unwrap()
    }

    /// Reads on for as long as another command needs to come to the same result: its periods begin and
    /// end at other times.
    pub(crate) fn wait_for_other(&mut self, pid: u32) {
        for _ in 0..2 {
            self.next_of(pid);
        }
    }

    fn next_of(&mut self, pid: u32) -> Value {
        let mut reports = std::iter::repeat_with(|| self.next());
        reports.find(|report| report["pid"] == pid).unwrap()
    }

    /// Stops the command and returns the rest of its output.
    pub(crate) fn stop(self) -> Vec<Value> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.rest()
    }

    /// Returns the rest of the output of a command that ends.
    pub(crate) fn rest(mut self) -> Vec<Value> {
        let rest = serde_json::Deserializer::from_reader(&mut self.output).into_iter();
        let rest = rest.collect::<Result<_, _>>().unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // Only a command left by a failed test still runs.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns the chain of a cause in a report of `trace`.
pub(crate) fn chain<'a>(report: &'a Value, cause: &str) -> Option<&'a Value> {
    let mut chains = report["chains"].as_array().unwrap().iter();
    chains.find(|chain| chain["cause"] == cause)
}

/// Returns the chain of a cause of a process in the output of `explain`.
pub(crate) fn held_chain<'a>(process: &'a Value, cause: &str) -> Option<&'a Value> {
    let chains = process["chains"].as_array().unwrap().iter();
    let mut chains = chains.map(|held| &held["chain"]);
    chains.find(|chain| chain["cause"] == cause)
}
