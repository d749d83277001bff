//! `fleet-echo open` on recordings of two hosts.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::testbed::{ECHO, agent, repository};

fn recording(name: &str) -> String {
    let path = repository("testdata/recordings").join(name);
    path.to_str().unwrap().to_owned()
}

/// Runs the command with these lines on its standard input.
fn open(arguments: &[&str], lines: &[Value]) -> Output {
    let mut child = Command::new(ECHO)
        .args(["--log", "error", "open", "--agent"])
        .arg(agent())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in lines {
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    child.wait_with_output().unwrap()
}

fn call(id: u32, tool: &str, arguments: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({
        "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments, "_meta": meta },
    })
}

#[test]
fn a_client_queries_the_tools_about_recordings_of_two_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("kept.duckdb");
    let lines = [
        call(
            1,
            "fleet.cluster.find_outlier_nodes",
            &json!({ "window": "all" }),
        ),
        call(2, "fleet.host.check", &json!({ "window": "all" })),
        call(
            3,
            "fleet.host.get_causal_chains",
            &json!({ "window": "all", "node": "healthy" }),
        ),
    ];
    let (one, other) = (
        recording("healthy.jsonl.gz"),
        recording("host-sleep-rank2.jsonl.gz"),
    );
    let arguments = ["--mcp", "--db", db.to_str().unwrap(), &one, &other];
    let output = open(&arguments, &lines);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let answers: BTreeMap<u64, Value> = printed
        .lines()
        .map(|line| {
            let message: Value = serde_json::from_str(line).unwrap();
            let answer = message["result"]["structuredContent"].clone();
            (message["id"].as_u64().unwrap(), answer)
        })
        .collect();
    let outliers = answers[&1]["outliers"].as_array().unwrap();
    let late: Vec<_> = outliers
        .iter()
        .map(|outlier| (&outlier["node_id"], &outlier["rank"]))
        .collect();
    assert_eq!(late, [(&json!("host-sleep-rank2"), &json!(2))], "{printed}");
    let nodes = answers[&2]["nodes"].as_array().unwrap();
    let mut nodes: Vec<_> = nodes.iter().map(|node| node["node_id"].as_str()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [Some("healthy"), Some("host-sleep-rank2")]);
    assert!(answers[&3]["chains"].is_array(), "{printed}");
    assert!(errors.contains("page     http://127.0.0.1:"), "{errors}");
    assert!(db.is_file(), "the database is kept");
}

#[test]
fn a_file_that_is_not_a_recording_is_refused_with_the_next_step() {
    let readme = recording("README.md");
    let empty = tempfile::tempdir().unwrap();
    let empty: &Path = empty.path();
    for (path, part) in [
        (readme.as_str(), "fleet-echo import --serve"),
        (empty.to_str().unwrap(), "fleet-agent record"),
    ] {
        let output = open(&["--mcp", path], &[]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(65), "{errors}");
        assert!(errors.contains(part), "{errors}");
    }
}
