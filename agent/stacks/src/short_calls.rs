//! Calls that are too short and too rare to be met by samples.

use std::thread;
use std::time::Duration;

use fleet_agent_core::event::{CallDurations, CallProbes};
use fleet_agent_core::explain::Cause;

use crate::clock::monotonic_ns;
use crate::sampler::Sampler;

/// Time for which calls are waited for, nanoseconds: a fifth of the interval between two samples.
const WAIT_NS: u64 = 10_000_000;
/// Pause between two looks. A call that makes a graph takes some hundred microseconds.
const PAUSE: Duration = Duration::from_micros(100);

/// Returns whether a process made GPU graphs in a period.
pub fn makes_graphs(durations: &CallDurations) -> bool {
    let mut functions = durations.calls.iter().map(|calls| calls.function.as_str());
    functions.any(makes_graph)
}

fn makes_graph(function: &str) -> bool {
    Cause::GraphCreation.has_function(function)
}

/// Waits for calls that make graphs, and reads the Python lines of those that begin meanwhile. Takes
/// 10 ms, unless there is no process.
#[expect(
    clippy::disallowed_methods,
    reason = "the calls of another process are looked for; nothing announces them"
)]
pub fn read_short_calls(samplers: &mut [&mut Sampler], probes: &impl CallProbes) {
    if samplers.is_empty() {
        return;
    }
    let until_ns = monotonic_ns().saturating_add(WAIT_NS);
    let mut now_ns = monotonic_ns();
    while now_ns < until_ns {
        for sampler in &mut *samplers {
            sampler.read_calls(now_ns, probes, makes_graph);
        }
        thread::sleep(PAUSE);
        now_ns = monotonic_ns();
    }
}
