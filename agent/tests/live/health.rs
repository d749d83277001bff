//! Health of a host: what Echo reports about it reaches the programs of the host.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::echo::{Echo, reporting};
use crate::fixture::{Gpu, Linking};
use crate::job::wait_for;
use crate::{ECHO, PROBES};

const ACTIONS: &str = "\
limits: { max_nodes: 1, max_percent: 100, min_coverage: 0, min_confidence: 0.5 }
consumers: { hosts: { mode: act, agents: {} } }
rules: [{ consumers: [hosts], min_severity: info, classes: [host, device, inconclusive], open_for: 0s }]
";

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

#[test]
#[needs(PROBES, ECHO)]
fn the_host_of_a_slow_rank_is_unhealthy_and_unknown_while_its_agent_is_killed() {
    let gpu = Gpu::new();
    let (actions, socket) = (gpu.gate("actions.yaml"), gpu.gate("health.sock"));
    fs::write(&actions, ACTIONS).unwrap();
    let flags = ["--actions", actions.to_str().unwrap()];
    let echo = Echo::start_with(gpu.path(), ["127.0.0.1:0"; 2], &flags);
    let flag = format!("--health-socket={}", socket.display());
    let flags = ["--pin=none", flag.as_str()];
    let mut running = reporting(&echo, &flags);

    let end = format!("end={}", gpu.gate("end").display());
    let options = [
        "step=4",
        "compute=50",
        "slow=2:8:2500:1000000000",
        end.as_str(),
    ];
    let job = gpu.job(Linking::Dynamic, 4, 0, &options);
    running.follow(&gpu, &job);
    wait_until_unhealthy(&socket);

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
fn the_host_of_the_rank_that_a_job_hangs_for_is_unhealthy_until_the_job_ends() {
    let gpu = Gpu::new();
    let (actions, socket) = (gpu.gate("actions.yaml"), gpu.gate("health.sock"));
    fs::write(
        &actions,
        ACTIONS.replace("[host, device, inconclusive]", "[hang]"),
    )
    .unwrap();
    let flags = ["--actions", actions.to_str().unwrap(), "--hang-after", "6s"];
    let echo = Echo::start_with(gpu.path(), ["127.0.0.1:0"; 2], &flags);
    let flag = format!("--health-socket={}", socket.display());
    let mut running = reporting(&echo, &["--pin=none", &flag]);

    // Rank 2 stays in its 1,000th step.
    let end = format!("end={}", gpu.gate("end").display());
    let options = ["step=4", "compute=50", "slow=2:600000:1000:1001", &end];
    let job = gpu.job(Linking::Dynamic, 4, 0, &options);
    running.follow(&gpu, &job);
    wait_until_unhealthy(&socket);
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
