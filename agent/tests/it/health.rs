//! `straggler-check` as a plugin, and its configuration for node-problem-detector.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

fn configuration() -> Value {
    let path = "../deploy/node-problem-detector/gpu-straggler.json";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn seconds(value: &Value) -> Duration {
    let text = value.as_str().unwrap().strip_suffix('s').unwrap();
    Duration::from_secs(text.parse().unwrap())
}

#[test]
fn the_plugin_is_unknown_without_an_agent_and_says_so_in_eighty_bytes() {
    let configuration = configuration();
    let rule = &configuration["rules"][0];
    let args = rule["args"].as_array().unwrap();
    let mut args: Vec<&str> = args.iter().map(|arg| arg.as_str().unwrap()).collect();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none.sock");
    *args.last_mut().unwrap() = socket.to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fleet-agent"))
        .args(args)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stdout).unwrap();
    assert_eq!(message, "fleet-agent does not answer: no connection\n");
    let kept = configuration["pluginConfig"]["max_output_length"].as_u64();
    assert!(message.trim().len() as u64 <= kept.unwrap());
}

#[test]
fn the_monitor_has_what_node_problem_detector_requires() {
    let configuration = configuration();
    assert_eq!(configuration["plugin"], "custom");
    let plugin = &configuration["pluginConfig"];
    assert!(seconds(&plugin["invoke_interval"]) > Duration::ZERO);
    let conditions = configuration["conditions"].as_array().unwrap();
    let rules = configuration["rules"].as_array().unwrap();
    assert!(!rules.is_empty());
    for rule in rules {
        assert_eq!(rule["type"], "permanent");
        let is_preset = |one: &Value| one["type"] == rule["condition"];
        assert!(conditions.iter().any(is_preset), "{rule}");
        assert!(seconds(&rule["timeout"]) <= seconds(&plugin["timeout"]));
        assert!(Path::new(rule["path"].as_str().unwrap()).is_absolute());
    }
}
