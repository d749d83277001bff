//! Stacks of the recorded processes.

use fleet_agent_core::event::CallDurations;
use fleet_agent_sources::recorder::Recorder;
use fleet_agent_sources::watch::{PollResult, ProbedCalls};

use crate::stack_sampling::StackSampling;

/// Interval of the lines, nanoseconds.
const INTERVAL_NS: u64 = 1_000_000_000;

/// Sampling of the recorded processes, each in its first thread and in those that call the libraries.
#[derive(Debug)]
pub(super) struct RecordedStacks {
    sampling: Option<StackSampling>,
    calls: ProbedCalls,
    written_ns: u64,
}

impl RecordedStacks {
    /// Starts without processes; samples nothing if stacks are not requested.
    pub(super) fn new(are_requested: bool, calls: ProbedCalls, now_ns: u64) -> Self {
        Self {
            sampling: are_requested.then(StackSampling::default),
            calls,
            written_ns: now_ns,
        }
    }

    /// Samples each process once, and passes the samples on each second and at the end, before the poll
    /// result is recorded.
    pub(super) fn sample(&mut self, polled: &PollResult, recorder: &mut Recorder, is_last: bool) {
        let Some(sampling) = &mut self.sampling else {
            return;
        };
        for pid in recorder.unranked() {
            sampling.add(*pid, *pid);
        }
        for call in &polled.returned {
            if recorder.is_recorded(call.tgid) {
                sampling.add(call.tgid, call.tgid);
                sampling.add(call.tgid, call.tid);
            }
        }
        sampling.sample(polled.until_ns, &self.calls);
        let is_due = polled.until_ns.saturating_sub(self.written_ns) >= INTERVAL_NS;
        if is_due || is_last || !polled.exited.is_empty() {
            self.written_ns = polled.until_ns;
            recorder.push_samples(polled.until_ns, sampling.take());
        }
        for pid in &polled.exited {
            sampling.remove(*pid);
        }
    }

    /// Takes in the calls of a process in a period.
    pub(super) fn on_durations(&mut self, durations: &CallDurations) {
        if let Some(sampling) = &mut self.sampling {
            sampling.on_durations(durations);
        }
    }

    /// Logs what could not be sampled.
    pub(super) fn log_limits(&self) {
        let sampling = self.sampling.iter();
        for limit in sampling.flat_map(StackSampling::limits) {
            tracing::warn!("stacks are incomplete: {limit}");
        }
    }
}
