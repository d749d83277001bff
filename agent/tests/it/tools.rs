//! `record` and `check` on the host that runs the tests.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn agent(args: &[&str]) -> Output {
    let binary = Path::new(env!("CARGO_BIN_EXE_fleet-agent"));
    Command::new(binary).args(args).output().unwrap()
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn findings() -> (Option<i32>, Value) {
    let output = agent(&["check", "--json"]);
    let findings = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), findings)
}

#[test]
fn check_ends_with_0_exactly_if_the_agent_can_run() {
    let (code, report) = findings();
    let expected = if report["can_run"] == true { 0 } else { 77 };
    assert_eq!(code, Some(expected), "{report}");
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["name"] == "kernel"));
    let text = agent(&["check"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("The agent can"));
}

#[test]
fn an_existing_recording_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.jsonl");
    std::fs::write(&path, "precious").unwrap();
    let output = agent(&["record", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(73));
    assert!(message(&output).contains("--overwrite"), "{output:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}
