//! `fleet-echo open` on recordings of two hosts.

use std::collections::BTreeMap;
use std::fs;
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

/// Returns the answers of the tools by the id of the call, and the messages.
fn answers(arguments: &[&str], lines: &[Value]) -> (BTreeMap<u64, Value>, String) {
    let output = open(arguments, lines);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let answers = printed.lines().map(|line| {
        let message: Value = serde_json::from_str(line).unwrap();
        let answer = message["result"]["structuredContent"].clone();
        (message["id"].as_u64().unwrap(), answer)
    });
    (answers.collect(), errors)
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
    let (answers, errors) = answers(&arguments, &lines);
    let outliers = answers[&1]["outliers"].as_array().unwrap();
    let late: Vec<_> = outliers
        .iter()
        .map(|outlier| (&outlier["node_id"], &outlier["rank"]))
        .collect();
    assert_eq!(late, [(&json!("host-sleep-rank2"), &json!(2))]);
    let nodes = answers[&2]["nodes"].as_array().unwrap();
    let mut nodes: Vec<_> = nodes.iter().map(|node| node["node_id"].as_str()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [Some("healthy"), Some("host-sleep-rank2")]);
    assert!(answers[&3]["chains"].is_array(), "{answers:?}");
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

/// Writes a recording of 50 s of a host with four ranks, of which one (`late`) loses a third of its time
/// to a task on its CPU, and all allocate.
fn record_host(path: &Path, ranks: std::ops::Range<u32>, late: Option<u32>) {
    const SECOND: u64 = 1_000_000_000;
    let processes: Vec<Value> = ranks
        .clone()
        .map(|rank| json!({"pid": 100 + rank, "rank": rank, "world_size": 8}))
        .collect();
    let mut lines =
        vec![json!({"kind": "header", "version": 1, "name": "host", "processes": processes})];
    for (stack, line) in [("aa", 142), ("bb", 17)] {
        let frame = json!({"file": "/app/train.py", "line": line, "fn": "forward"});
        lines.push(json!({"kind": "stack", "ts": SECOND, "stack": stack, "frames": [frame]}));
    }
    for second in 1..=50 {
        let ts = second * SECOND;
        for rank in ranks.clone() {
            let pid = 100 + rank;
            let is_late = late == Some(rank);
            let ns = if is_late { SECOND / 3 } else { SECOND / 200 };
            let task = json!({"task": "node_exporter", "cpu": 12, "ns": ns, "switches": 9});
            let delays = json!({"preempted_by": [task], "interrupt_ns": 0});
            lines.push(json!({"kind": "delays", "ts": ts, "window_ns": SECOND, "pid": pid, "delays": delays}));
            let malloc = json!({"fn": "cudaMalloc", "buckets": [[100, 20]], "total_ns": 2_000_000, "longest_ns": 200_000});
            lines.push(json!({"kind": "call_durations", "ts": ts, "pid": pid, "durations": {"calls": [malloc]}}));
            let (stack, call) = if is_late {
                ("aa", None)
            } else {
                ("bb", Some("cudaStreamSynchronize"))
            };
            lines.push(json!({"kind": "samples", "ts": ts, "pid": pid, "tid": pid, "n": 20, "stack": stack, "in_call": call}));
        }
    }
    let text: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, text.concat()).unwrap();
}

/// Writes a recording of a process without a rank that allocates a tenth of its time.
fn record_single_gpu(path: &Path) {
    const SECOND: u64 = 1_000_000_000;
    let header = json!({"kind": "header", "version": 1, "name": "host", "processes": [], "unranked": [4711]});
    let malloc = json!({"fn": "cudaMalloc", "buckets": [[100, 20]], "total_ns": SECOND / 10, "longest_ns": SECOND / 100});
    let lines = (1..=50).map(|second| {
        json!({"kind": "call_durations", "ts": second * SECOND, "pid": 4711, "durations": {"calls": [malloc]}})
    });
    let text: Vec<String> = [header]
        .into_iter()
        .chain(lines)
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(path, text.concat()).unwrap();
}

#[test]
fn recordings_of_two_hosts_say_why_and_where_as_the_live_hosts_did() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["gpu-7", "gpu-8"].map(|node| folder.path().join(format!("{node}.jsonl")));
    record_host(&one, 0..4, Some(1));
    record_host(&other, 4..8, None);
    record_single_gpu(&folder.path().join("workstation.jsonl"));
    let lines: Vec<Value> = ["get_causal_chains", "get_trace_stats", "get_stacks"]
        .into_iter()
        .zip(1..)
        .map(|(tool, id)| {
            call(
                id,
                &format!("fleet.host.{tool}"),
                &json!({ "window": "all" }),
            )
        })
        .collect();
    let (answers, _) = answers(&["--mcp", folder.path().to_str().unwrap()], &lines);
    let chains = answers[&1]["chains"].as_array().unwrap();
    let found: BTreeMap<_, _> = chains
        .iter()
        .map(|chain| (chain["node_id"].as_str().unwrap(), chain))
        .collect();
    assert_eq!(chains.len(), 2, "{chains:#?}");
    let (late, alone) = (found["gpu-7"], found["workstation"]);
    assert_eq!(
        (&late["rank"], &late["cause"]),
        (&json!(1), &json!("cpu_contention"))
    );
    assert_eq!(
        (&alone["pid"], &alone["cause"]),
        (&json!(4711), &json!("memory_allocation"))
    );
    let text = late.to_string();
    assert!(text.contains("node_exporter ran on cpu 12"), "{text}");
    assert!(text.contains("train.py:142 in forward()"), "{text}");
    let stats = answers[&2].to_string();
    assert!(
        stats.contains("cudaMalloc") && stats.contains("gpu-8"),
        "{stats}"
    );
    let stacks = answers[&3].to_string();
    for line in ["train.py:142 in forward()", "train.py:17 in forward()"] {
        assert!(stacks.contains(line), "{stacks}");
    }
}

#[test]
fn recordings_of_planted_causes_name_them() {
    let lines = [call(
        1,
        "fleet.host.get_causal_chains",
        &json!({ "window": "all", "limit": 50 }),
    )];
    let folder = recording("causes");
    let (answers, _) = answers(&["--mcp", &folder], &lines);
    let chains = answers[&1]["chains"].as_array().unwrap();
    for (recording, cause, part) in [
        ("ddp-gc-rank1", "own_code", "in collect_garbage()"),
        ("ddp-sleep-rank1", "own_code", "in read_slowly()"),
        ("ddp-lock-rank1", "own_code", "in wait_for_a_lock()"),
        (
            "ddp-recapture-rank1",
            "graph_creation",
            "in capture_again()",
        ),
        (
            "ddp-neighbour-rank1",
            "gpu_sharing",
            "neighbour.py (PID 723)",
        ),
        ("ddp-workers-rank1", "pipe", "in decode_in_python()"),
        (
            "ddp-copies-rank1",
            "own_code",
            "it was in cudaMemcpyAsync at job.py:81 in copy_to_the_host()",
        ),
        (
            "ddp-alloc-rank1",
            "memory_allocation",
            "in allocate_and_free()",
        ),
        ("engine-cpu", "cpu_contention", "sh ran on cpu 28"),
        (
            "engine-alloc",
            "memory_allocation",
            "in allocate_and_free()",
        ),
        ("engine-gc", "own_program", "in collect_garbage()"),
        ("engine-workers", "pipe", "in decode_in_python()"),
        ("engine-copies", "copies", "in copy_to_the_host()"),
    ] {
        let of_recording: Vec<&Value> = chains
            .iter()
            .filter(|chain| chain["node_id"] == recording)
            .collect();
        let is_named =
            |chain: &&&Value| chain["cause"] == cause && chain.to_string().contains(part);
        let named = of_recording.iter().find(is_named);
        assert!(named.is_some(), "{recording}: {of_recording:#?}");
        let is_innocent = |chain: &&&Value| chain["rank"] == 0;
        assert_eq!(of_recording.iter().find(is_innocent), None, "{recording}");
    }
}
