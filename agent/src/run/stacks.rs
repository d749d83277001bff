//! Sampling of stacks: of late ranks, armed by a policy or by a verdict of their own, together with a rank
//! to compare with, and of the process without a rank that loses most time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_agent_core::event::{CallProbes, Event, StackSample};
use fleet_agent_core::host::LateProcess;
use fleet_agent_core::printable::printable;
use fleet_agent_stacks::arming::{Arming, Reason, Report, Target};
use fleet_agent_stacks::clock::monotonic_ns;
use fleet_agent_stacks::short_calls::makes_graphs;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::config::StackSamplingArgs;
use crate::run::self_metrics::SelfMetrics;

/// Maximum number of requests, and of reports, that wait.
const MAX_QUEUED: usize = 64;
/// Maximum number of lines of a rank in the log.
const MAX_LINES: usize = 3;
/// Maximum number of characters of a line in the log.
const MAX_TEXT: usize = 160;

/// Requests to sample late ranks, and the stacks that were read.
pub(super) struct StackSampling {
    targets: mpsc::Sender<Target>,
    reports: mpsc::Receiver<Report>,
    self_metrics: Arc<SelfMetrics>,
    /// Thread of each process that last called a GPU library.
    callers: BTreeMap<u32, u32>,
    /// Processes that made GPU graphs in their last period.
    make_graphs: BTreeSet<u32>,
    lines: BTreeMap<u32, BTreeMap<String, u64>>,
}

/// Task that samples, on a thread of its own. It waits while nothing is requested.
pub(super) struct StackTask {
    targets: mpsc::Receiver<Target>,
    reports: mpsc::Sender<Report>,
    budget: f64,
    armed_for: Duration,
}

/// Creates both sides, unless sampling is turned off.
pub(super) fn stack_sampling(
    args: &StackSamplingArgs,
    self_metrics: &Arc<SelfMetrics>,
) -> Option<(StackSampling, StackTask)> {
    if args.without_stacks {
        return None;
    }
    let (targets, requested) = mpsc::channel(MAX_QUEUED);
    let (reporter, reports) = mpsc::channel(MAX_QUEUED);
    let sampling = StackSampling {
        targets,
        reports,
        self_metrics: Arc::clone(self_metrics),
        callers: BTreeMap::new(),
        make_graphs: BTreeSet::new(),
        lines: BTreeMap::new(),
    };
    let task = StackTask {
        targets: requested,
        reports: reporter,
        budget: args.stack_budget.fraction(),
        armed_for: args.stack_time,
    };
    Some((sampling, task))
}

impl StackTask {
    /// Samples what is requested, with what probes know of the calls, until the other side is gone.
    pub(super) fn run(mut self, probes: &impl CallProbes) {
        let runtime = Handle::current();
        let mut arming = Arming::new(self.budget).with_duration(self.armed_for);
        loop {
            let requested = match arming.pause(monotonic_ns()) {
                Some(pause) => runtime.block_on(timeout(pause, self.targets.recv())).ok(),
                None => Some(self.targets.blocking_recv()),
            };
            let now_ns = monotonic_ns();
            let reports = match requested {
                Some(Some(target)) => arming.arm(target, now_ns).into_iter().collect(),
                Some(None) => break,
                None => arming.sample(now_ns, probes),
            };
            for report in reports {
                // The agent stops if it does not listen any more.
                let _gone = self.reports.blocking_send(report);
            }
        }
    }
}

impl StackSampling {
    /// Takes in an event, which can tell of the thread that calls a GPU library, or of its calls.
    pub(super) fn record_event(&mut self, event: &Event) {
        match event {
            Event::Call(call) => {
                self.callers.insert(call.pid, call.tid);
            }
            Event::CallDurations(durations) => {
                self.make_graphs.remove(&durations.pid);
                if makes_graphs(durations) {
                    self.make_graphs.insert(durations.pid);
                }
            }
            Event::Ended(ended) => {
                self.callers.remove(&ended.pid);
                self.make_graphs.remove(&ended.pid);
            }
            _ => {}
        }
    }

    /// Requests to sample late ranks and their peers. A process is sampled once per minute at most.
    pub(super) fn arm(&self, late: &[LateProcess]) {
        for LateProcess { pid, peer } in late {
            for pid in [Some(*pid), *peer].into_iter().flatten() {
                let caller = self.callers.get(&pid).filter(|tid| **tid != pid);
                let tids = [Some(pid), caller.copied()].into_iter().flatten();
                let target = Target {
                    pid,
                    tids: tids.collect(),
                    makes_graphs: self.make_graphs.contains(&pid),
                };
                // If too many wait, others are sampled.
                let _full = self.targets.try_send(target);
            }
        }
    }

    /// Returns the stacks that were read since the last call, and logs what is new.
    pub(super) fn take(&mut self) -> Vec<StackSample> {
        let mut taken = Vec::new();
        while let Ok(report) = self.reports.try_recv() {
            match report {
                Report::Armed { pid, limits } => {
                    let missing = limits.join("; ");
                    tracing::info!(pid, %missing, "sampling the stacks of a process");
                }
                Report::Samples { samples, .. } => {
                    // Those of calls that were waited for say nothing of time.
                    let own = samples.iter().filter(|sample| !sample.is_worker);
                    for sample in own.filter(|sample| sample.samples > 0) {
                        let lines = self.lines.entry(sample.pid).or_default();
                        *lines.entry(line(sample)).or_default() += sample.samples;
                    }
                    taken.extend(samples);
                }
                Report::Disarmed {
                    pid,
                    reason,
                    counts,
                } => {
                    let is_over_budget = reason == Reason::Budget;
                    self.self_metrics.add_stack_samples(counts, is_over_budget);
                    self.log_end(pid, &reason);
                }
            }
        }
        taken
    }

    fn log_end(&mut self, pid: u32, reason: &Reason) {
        match reason {
            Reason::Done => {}
            Reason::Budget => tracing::warn!(
                pid,
                "stopped sampling the stacks of a process: the CPU time of --stack-budget is spent"
            ),
            Reason::Failed(error) => {
                let error = printable(error, MAX_TEXT);
                tracing::warn!(pid, "cannot sample the stacks of a process: {error}");
            }
        }
        let mut lines: Vec<(String, u64)> = self
            .lines
            .remove(&pid)
            .unwrap_or_default()
            .into_iter()
            .collect();
        lines.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        let total: u64 = lines.iter().map(|(_, samples)| samples).sum();
        for (line, samples) in lines.iter().take(MAX_LINES) {
            let percent = samples * 100 / total.max(1);
            tracing::info!(
                pid,
                percent,
                samples,
                line,
                "where a process spends its time"
            );
        }
    }
}

/// Returns the innermost Python line of a sample, else its innermost frame, and the call.
fn line(sample: &StackSample) -> String {
    let stack = &sample.stack;
    let frame = stack.python_line().or_else(|| stack.frames.first());
    let frame = frame.map(ToString::to_string).unwrap_or_default();
    let text = match &sample.call {
        Some(call) => format!("{frame}, in {call}"),
        None => frame,
    };
    printable(&text, MAX_TEXT)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use fleet_agent_core::event::Unprobed;
    use tokio::task::spawn_blocking;

    use super::*;

    /// Process that waits, killed on drop.
    struct Waiting(Child);

    impl Waiting {
        fn start() -> Self {
            Self(Command::new("sleep").arg("60").spawn().unwrap())
        }
    }

    impl Drop for Waiting {
        fn drop(&mut self) {
            let _gone = self.0.kill();
            let _status = self.0.wait();
        }
    }

    fn sampling(without_stacks: bool) -> Option<(StackSampling, StackTask)> {
        let args = StackSamplingArgs {
            without_stacks,
            stack_budget: "100%".parse().unwrap(),
            stack_time: Duration::from_secs(10),
        };
        let self_metrics = Arc::new(SelfMetrics::new(Arc::default(), None));
        stack_sampling(&args, &self_metrics)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_late_process_and_its_peer_are_sampled() {
        let processes = [Waiting::start(), Waiting::start()];
        let [pid, peer] = [0, 1].map(|index: usize| processes[index].0.id());
        let (mut sampling, task) = sampling(false).unwrap();
        let running = spawn_blocking(move || task.run(&Unprobed));
        let peer = Some(peer);
        sampling.arm(&[LateProcess { pid, peer }]);
        let mut sampled = BTreeSet::new();
        while sampled.len() < 2 {
            let report = timeout(Duration::from_secs(25), sampling.reports.recv());
            match report.await.unwrap().unwrap() {
                Report::Samples { samples, .. } => {
                    sampled.extend(samples.iter().map(|sample| sample.pid));
                }
                Report::Disarmed { reason, .. } => {
                    eprintln!("skipped: stacks cannot be sampled here: {reason:?}");
                    break;
                }
                Report::Armed { .. } => {}
            }
        }
        // The task ends with the agent.
        drop(sampling);
        running.await.unwrap();
    }

    #[test]
    fn nothing_is_sampled_if_it_is_turned_off() {
        assert!(sampling(true).is_none());
    }

    #[test]
    fn a_line_names_the_call_that_the_thread_is_in() {
        use fleet_agent_core::event::{Frame, Stack};
        let sample = StackSample {
            ts_ns: 1,
            pid: 7,
            tid: 7,
            is_worker: false,
            call: Some("ncclAllReduce".to_owned()),
            stack: Stack {
                frames: vec![Frame::Python {
                    file: "/app/train.py".to_owned(),
                    line: 142,
                    function: "backward".to_owned(),
                }],
            },
            samples: 1,
            outside: 0,
        };
        assert_eq!(
            line(&sample),
            "train.py:142 in backward(), in ncclAllReduce"
        );
    }
}
