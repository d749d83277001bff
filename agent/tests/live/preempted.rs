//! Task on the CPU of a late rank, from end to end: probes, agent, OTLP, Echo, and the queries.

use std::fs;

use serde_json::{Value, json};

use crate::delays::{Hog, pinned_to, start};
use crate::echo::{Echo, reporting};
use crate::fixture::Gpu;
use crate::job::wait_for_within;
use crate::running::Running;
use crate::{ECHO, PROBES};

/// Counter of the job's calls, on four ranks of nine calls per step.
const CALLS: &str = "fleet_agent_events_total{source=\"calls\"}";
/// Calls after which Echo knows the job in health.
const HEALTHY_CALLS: u64 = 36_000;
/// Most calls of the late job until the task is named: 700 steps, which take 20 ms and more.
const LATE_CALLS: u64 = 25_000;

#[test]
#[needs(PROBES, ECHO)]
fn echo_names_the_task_on_the_cpu_of_a_late_rank() {
    let gpu = Gpu::new();
    let echo = Echo::start_with(gpu.path(), ["127.0.0.1:0"; 2], &[]);
    // Blocks much shorter than the second between two readings of the counters.
    let mut running = reporting(&echo, &["--pin=none", "--block-ops=64"]);
    let fault = gpu.gate("fault");
    let from = format!("delay_from={}", fault.display());
    let job = start(&gpu, (4, 2), &["delay=2:spin:20", &from], &pinned_to(0));
    running.follow(&gpu, &job);
    running.wait_for_metric(CALLS, |calls| calls > HEALTHY_CALLS);
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    fs::write(fault, "").unwrap();
    wait_until_named(
        &running,
        &echo,
        "fleet.cluster.find_outlier_nodes",
        &json!({"cluster": "live"}),
    );
    let rank = json!({"cluster": "live", "rank": 2});
    wait_until_named(&running, &echo, "fleet.cluster.explain_rank", &rank);
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
    running.stop();
}

/// Waits until the evidence in an answer names the task.
fn wait_until_named(running: &Running, echo: &Echo, tool: &str, arguments: &Value) {
    let is_named = |answer: &str| {
        let by = answer
            .split("\"preempted ")
            .skip(1)
            .filter_map(|rest| rest.split_once(" by "));
        let mut sentences = by.map(|(_, by)| by.split('"').next().unwrap_or_default());
        sentences.any(|tasks| tasks.contains("cpu-hog") && tasks.contains("cpu 0"))
    };
    let calls = || running.metric(CALLS);
    wait_for_within(LATE_CALLS, calls, "the task in the evidence", || {
        let answer = echo
            .call_tool(tool, arguments)
            .unwrap_or_default()
            .to_string();
        if is_named(&answer) {
            Ok(())
        } else {
            Err(answer)
        }
    });
}
