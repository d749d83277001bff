//! Running command that reports on processes until it is stopped.

use std::process::{Child, Command, Stdio};
use std::task::Poll;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::delays::with_priority;
use crate::fixture::agent;
use crate::job::wait_for;
use crate::running::output::Output;

/// Period of the reports, a fifth of the usual one.
const PERIOD: &str = "1s";
/// Period of reports from recordings, which hold some measurements once per second only, and of
/// those about lines, which need many samples.
pub(crate) const LONG_PERIOD: &str = "--report-period=2s";

/// Running `trace`, `explain` or `record`, killed on drop.
pub(crate) struct Watching {
    child: Child,
    output: Output,
}

impl Watching {
    /// Starts a command of the agent with JSON output.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::run(agent(), arguments)
    }

    /// Starts a command like [`Self::start`] with a priority, so that it also meets short calls while
    /// other tests use the CPUs.
    pub(crate) fn start_with_priority(nice: i32, arguments: &[&str]) -> Self {
        let words = with_priority(nice);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(agent().get_program());
        Self::run(command, arguments)
    }

    /// Starts a command like [`Self::start`], of this agent.
    pub(crate) fn run(mut command: Command, arguments: &[&str]) -> Self {
        let mut child = command
            .args(arguments)
            .arg("--json")
            .env("FLEET_AGENT_REPORT_PERIOD", PERIOD)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Output::read(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Reads reports until `pick` returns something of one, which `what` describes.
    #[track_caller]
    pub(crate) fn find<T>(&self, what: &str, mut pick: impl FnMut(Value) -> Option<T>) -> T {
        let mut last = String::new();
        wait_for(what, || {
            while let Poll::Ready(line) = self.output.next() {
                last = line.unwrap_or_else(|| panic!("it ended before {what}, after {last}"));
                if let Some(found) = pick(serde_json::from_str(&last).unwrap()) {
                    return Ok(found);
                }
            }
            Err(last.clone())
        })
    }

    /// Returns the first report of a process with a cause and its place.
    #[track_caller]
    pub(crate) fn until(&self, pid: u32, cause: &str) -> Value {
        self.find(cause, |report| {
            let has_place = report["pid"] == pid && chain(&report, cause).is_some_and(is_placed);
            has_place.then_some(report)
        })
    }

    /// Reads on for as long as another command needs to come to the same result: its periods begin and
    /// end at other times.
    pub(crate) fn wait_for_other(&self, pid: u32) {
        for _ in 0..2 {
            self.find("another report", |report| {
                (report["pid"] == pid).then_some(())
            });
        }
    }

    /// Stops the command and returns the rest of its output.
    pub(crate) fn stop(self) -> Vec<Value> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.rest()
    }

    /// Returns the rest of the output of a command that ends.
    pub(crate) fn rest(mut self) -> Vec<Value> {
        let mut text = String::new();
        wait_for("the end of the command", || {
            while let Poll::Ready(line) = self.output.next() {
                match line {
                    Some(line) => text += &line,
                    None => return Ok(()),
                }
            }
            Err(text.clone())
        });
        assert!(self.child.wait().unwrap().success());
        let rest = serde_json::Deserializer::from_str(&text).into_iter();
        rest.collect::<Result<_, _>>().unwrap()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // Only a command left by a failed test still runs.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns whether a sample has met the call of a chain, which can take some periods.
pub(crate) fn is_placed(chain: &Value) -> bool {
    !chain["function"].is_null()
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
