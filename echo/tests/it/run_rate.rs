//! What is lost per hour now, after the job has ended.

use std::process::Command;

use serde_json::{Value, json};

use crate::testbed::{ECHO, Echo, recording, replay_all};

/// Runs a command against an instance. Returns exit code and output.
fn run(echo: &Echo, line: &str) -> (Option<i32>, String) {
    let server = format!("http://{}", echo.http);
    let mut command = Command::new(ECHO);
    command.args(line.split_whitespace());
    let output = command.args(["--server", &server]).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

#[test]
fn a_job_that_has_ended_loses_nothing_per_hour_now() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    // Rank 2 is late to the end of the job, which was long ago.
    let slow = recording("four-gpus/graphs-neighbour2");
    replay_all(&slow, &echo, "lab", "max");
    echo.caught_up();
    let now = echo.query("get_cost", "lab");
    assert!(now["window_total"].as_f64() > Some(0.0), "{now}");
    assert_eq!(now["run_rate_per_hour"], 0.0, "{now}");
    assert_eq!(now["lost_gpu_hours_per_hour"], 0.0, "{now}");
    assert_eq!(now["contributors"][0]["run_rate_per_hour"], Value::Null);
    let limit = "assert cost --cluster lab --window all --max-cost-per-hour";
    let (code, printed) = run(&echo, &format!("{limit} 0"));
    assert_eq!(code, Some(0), "{printed}");
    let (_, printed) = run(&echo, "status --cluster lab --window all");
    assert!(printed.contains(", 0.00 USD per hour now"), "{printed}");
    // At its end it did.
    let from = now["window"]["from"].as_str().unwrap();
    let to: jiff::Timestamp = now["window"]["to"].as_str().unwrap().parse().unwrap();
    let to = (to + jiff::SignedDuration::from_millis(1)).to_string();
    let input = json!({ "cluster": "lab", "from": from, "to": to });
    let (_, at_end) = echo.post("fleet.cluster.get_cost", &input);
    assert_eq!(at_end["window_total"], now["window_total"]);
    let rate = at_end["run_rate_per_hour"].as_f64().unwrap();
    assert!(rate > 0.0, "{at_end}");
    let limit = format!("assert cost --cluster lab --from {from} --to {to} --max-cost-per-hour");
    let (code, printed) = run(&echo, &format!("{limit} 0"));
    assert_eq!(code, Some(1), "{printed}");
    assert_eq!(echo.terminate(), 0);
}
