//! A verdict while the job runs, and everybody who learns of it: the query, the agent that samples the
//! rank, and the programs of its host. One job serves all, since Echo needs a healthy past of each.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::delays::{Hog, pinned_to, start};
use crate::echo::{Echo, reporting};
use crate::fixture::{Gpu, Linking};
use crate::job::{wait_for, wait_for_within};
use crate::running::Running;
use crate::{ECHO, PROBES};

const ACTIONS: &str = "\
limits: { max_nodes: 1, max_percent: 100, min_coverage: 0, min_confidence: 0.5 }
consumers: { hosts: { mode: act, agents: {} } }
rules: [{ consumers: [hosts], min_severity: info, classes: [host, device, inconclusive], open_for: 0s }]
";

/// Counter of the job's calls, on four ranks of nine calls per step.
const CALLS: &str = "fleet_agent_events_total{source=\"calls\"}";
/// Calls after which Echo knows the job in health.
const HEALTHY_CALLS: u64 = 36_000;
/// Most calls of the late job until the task is named: 700 steps, which take 20 ms and more.
const LATE_CALLS: u64 = 25_000;

/// Runs the check of node-problem-detector; returns its exit code and message.
fn check(socket: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-agent"));
    command.args(["straggler-check", "--socket"]).arg(socket);
    let output = command.output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

/// Waits until the check names rank 2; on a busy machine it can name another one before.
#[track_caller]
fn wait_until_unhealthy(socket: &Path) {
    wait_for("an unhealthy host because of rank 2", || {
        let (code, message) = check(socket);
        let is_named = code == Some(1) && message.starts_with("rank 2 is ");
        if is_named {
            Ok(())
        } else {
            Err(format!("{code:?} {message}"))
        }
    });
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

#[test]
#[needs(PROBES, ECHO)]
fn a_rank_is_named_with_the_task_on_its_cpu_and_its_host_is_unhealthy_and_unknown_without_its_agent()
 {
    let gpu = Gpu::new();
    let (actions, socket) = (gpu.gate("actions.yaml"), gpu.gate("health.sock"));
    fs::write(&actions, ACTIONS).unwrap();
    let flags = ["--actions", actions.to_str().unwrap()];
    let echo = Echo::start_with(gpu.path(), ["127.0.0.1:0"; 2], &flags);
    let flag = format!("--health-socket={}", socket.display());
    // Blocks much shorter than the second between two readings of the counters.
    let flags = [
        "--pin=none",
        "--block-ops=64",
        "--stack-time=2s",
        flag.as_str(),
    ];
    let mut running = reporting(&echo, &flags);
    let fault = gpu.gate("fault");
    let from = format!("delay_from={}", fault.display());
    let job = start(&gpu, (4, 2), &["delay=2:spin:20", &from], &pinned_to(0));
    running.follow(&gpu, &job);
    running.wait_for_metric(CALLS, |calls| calls > HEALTHY_CALLS);
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    fs::write(fault, "").unwrap();
    let (cluster, rank) = (
        json!({"cluster": "live"}),
        json!({"cluster": "live", "rank": 2}),
    );
    wait_until_named(
        &running,
        &echo,
        "fleet.cluster.find_outlier_nodes",
        &cluster,
    );
    echo.wait_for_outlier(
        &json!({"node_id": "node-7", "rank": 2, "role": "culprit", "source": "host"}),
    );
    wait_until_named(&running, &echo, "fleet.cluster.explain_rank", &rank);
    wait_until_unhealthy(&socket);
    running.wait_for_log("where a process spends its time");
    echo.wait_for_stacks(2, "delay_step");

    // The agent's losses are reported to Echo, and there are none.
    let lost = echo.agent_metric("fleet.agent.events_lost");
    assert!(
        !lost.is_empty() && lost.iter().all(|count| *count == 0),
        "{lost:?}\n{}",
        running.metrics()
    );

    // The socket of a killed agent stays and is not served.
    drop(running);
    assert!(socket.exists());
    assert_eq!(check(&socket).0, Some(2));
    let running = reporting(&echo, &flags);
    wait_until_unhealthy(&socket);
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
    running.stop();
    assert!(!socket.exists());
}

#[test]
#[needs(PROBES, ECHO)]
fn the_rank_that_a_job_hangs_for_is_sampled_and_captured_and_its_host_is_unhealthy_until_the_job_ends()
 {
    let gpu = Gpu::new();
    let (actions, socket) = (gpu.gate("actions.yaml"), gpu.gate("health.sock"));
    let of_hangs = ACTIONS.replace("[host, device, inconclusive]", "[hang]");
    fs::write(&actions, of_hangs).unwrap();
    let flags = ["--actions", actions.to_str().unwrap(), "--hang-after", "6s"];
    let echo = Echo::start_with(gpu.path(), ["127.0.0.1:0"; 2], &flags);
    let flag = format!("--health-socket={}", socket.display());
    let mut running = reporting(&echo, &["--pin=none", "--stack-time=2s", &flag]);
    let end = format!("end={}", gpu.gate("end").display());
    let options = ["step=4", "compute=50", "slow=2:600000:250:251", &end];
    let job = gpu.job(Linking::Dynamic, 4, 0, &options);
    running.follow(&gpu, &job);
    wait_until_unhealthy(&socket);
    running.wait_for_log("where a process spends its time");
    echo.wait_for_stacks(2, "samples");
    let rank = json!({"cluster": "live", "rank": 2});
    // At first it may only be known that the rank does not wait.
    let parts = [
        "It keeps its job waiting since",
        "of its samples are in",
        "pause_ms",
    ];
    let explained = wait_for("the explanation", || {
        let explained = echo.call_tool("fleet.cluster.explain_rank", &rank).unwrap();
        let summary = explained["summary"].as_str().unwrap().to_owned();
        let is_whole = parts.iter().all(|part| summary.contains(part));
        is_whole.then_some(explained).ok_or(summary)
    });
    let incident = explained["conditions"][0]["incident_id"].as_str().unwrap();
    // Its file of threads, and that of a rank which waits for it.
    for rank in [2, 0] {
        let threads = echo.wait_for_file(incident, &format!("rank-{rank}/threads.txt"));
        assert!(threads.contains("Threads of process "), "{threads}");
    }
    let list = echo.wait_for_file(incident, "rank-2/capture.txt");
    assert!(list.contains("flight_recorder.pickle is missing"), "{list}");
    assert!(list.contains("ras.json is missing"), "{list}");
    drop(job);
    wait_for("a healthy host", || {
        let (code, message) = check(&socket);
        if code == Some(0) {
            Ok(())
        } else {
            Err(message)
        }
    });
    running.stop();
}
