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

#[test]
fn an_empty_recording_ends_with_69_and_leaves_no_file() {
    let (_, report) = findings();
    if report["can_run"] != true {
        println!("skipped: BPF programs cannot be loaded here: {report}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.jsonl.gz");
    // This process calls no GPU library.
    let own = std::process::id().to_string();
    let path = path.to_str().unwrap();
    let output = agent(&["record", path, "--pid", &own, "--duration", "10ms"]);
    assert_eq!(output.status.code(), Some(69));
    assert!(message(&output).contains("nothing to record"), "{output:?}");
    assert!(!Path::new(path).exists());
}
