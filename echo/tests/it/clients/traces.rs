//! Exported recordings and the trace of an incident, read by the trace viewer of Chromium (catapult).
//! Its figures are those of what was exported.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use fleet_test_harness::{NIGHTLY, NPM, PYPI};
use serde_json::Value;

use super::page::CHROMIUM;
use super::{Lab, client, done, node_modules, python_with};
use crate::testbed::{agent, lines, recording};

/// Package for Python that has the trace viewer, which needs none of the packages that it names.
const VIEWER: [&str; 2] = ["--no-deps", "torch-tb-profiler==0.4.3"];

/// The polyfill that the trace viewer needs in today's browsers.
const POLYFILL: [&str; 1] = ["webcomponents.js@0.7.24"];

/// Exports a recording to this path.
fn export(name: &str, output: &Path) {
    let mut command = Command::new(agent());
    command
        .arg("export")
        .arg(recording(name))
        .arg("--output")
        .arg(output);
    done(&mut command, "the agent cannot export a recording");
}

/// Processes of a trace as the trace viewer reads it, by name.
fn viewed(trace: &Path) -> BTreeMap<String, Value> {
    let mut viewer = python_with(&VIEWER, "python");
    viewer
        .arg(client("trace_viewer.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(trace)
        .arg(node_modules(&POLYFILL));
    let output = done(&mut viewer, "the trace viewer cannot read a trace");
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read["warnings"], serde_json::json!([]));
    let processes = read["processes"].as_array().unwrap().iter();
    let by_name = processes.map(|process| {
        let name = process["name"].as_str().unwrap();
        (name.to_owned(), process.clone())
    });
    by_name.collect()
}

/// Number of slices and their duration in milliseconds on the tracks of this name.
fn track(process: &Value, name: &str) -> (u64, f64) {
    let threads = process["threads"].as_array().unwrap().iter();
    let own = threads.filter(|thread| thread["name"].as_str().unwrap().starts_with(name));
    let figures = own.map(|thread| {
        assert_eq!(thread["unfinished"], 0, "{thread}");
        let duration_ms = thread["duration_ms"].as_f64().unwrap();
        (thread["slices"].as_u64().unwrap(), duration_ms)
    });
    figures.fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Number of calls of these functions by each process in a recording, and their milliseconds.
fn calls(name: &str, functions: &[&str]) -> BTreeMap<u64, (u64, f64)> {
    let mut found: BTreeMap<u64, (u64, f64)> = BTreeMap::new();
    for line in lines(&recording(name)) {
        let row: Value = serde_json::from_str(&line).unwrap();
        if functions.iter().any(|function| row["fn"] == *function) {
            let (count, duration_ms) = found.entry(row["pid"].as_u64().unwrap()).or_default();
            *count += 1;
            *duration_ms += row["dur"].as_f64().unwrap() / 1e6;
        }
    }
    found
}

#[test]
#[needs(NIGHTLY, PYPI, NPM, CHROMIUM)]
fn the_trace_viewer_shows_the_calls_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("job.json");
    let name = "host-sleep-rank2";
    export(name, &trace);
    let processes = viewed(&trace);
    for (shown, functions) in [
        (
            "collectives",
            &["ncclAllGather", "ncclAllReduce", "ncclBroadcast"][..],
        ),
        (
            "waits for the GPU",
            &[
                "cudaDeviceSynchronize",
                "cudaEventSynchronize",
                "cudaStreamSynchronize",
            ],
        ),
        ("memory copies", &["cudaMemcpyAsync"]),
    ] {
        let recorded = calls(name, functions);
        assert_eq!(recorded.len(), 4);
        for (rank, (count, duration_ms)) in recorded.values().enumerate() {
            let process = &processes[&format!("rank {rank} (host 0)")];
            let (slices, shown_ms) = track(process, shown);
            assert_eq!(slices, *count, "{shown} of rank {rank}");
            // The viewer adds up 15,000 durations.
            let difference_ms = (shown_ms - duration_ms).abs();
            assert!(
                difference_ms < 1e-3,
                "{shown} of rank {rank}: {difference_ms}"
            );
        }
    }
}

#[test]
#[needs(NIGHTLY, PYPI, NPM, CHROMIUM)]
fn the_trace_viewer_shows_the_incident_of_a_rank() {
    let lab = Lab::new();
    let trace = lab.folder.path().join("rank-2.json");
    let url = lab.url("/api/v1/trace.json?cluster=lab&rank=2&window=all");
    let saved = ureq::get(&url).call().unwrap().body_mut().read_to_vec();
    std::fs::write(&trace, saved.unwrap()).unwrap();
    let processes = viewed(&trace);
    let culprits = lab.echo.query("find_outlier_nodes", "lab");
    let culprits = culprits["outliers"].as_array().unwrap().iter();
    let culprits = culprits.filter(|one| one["role"] == "culprit" && one["rank"] == 2);
    let shown = processes["incidents"]["threads"].as_array().unwrap();
    let shown = shown.iter().filter(|thread| thread["first"] == "culprit");
    assert_eq!(shown.count(), culprits.count());
    for name in processes.keys().filter(|name| *name != "incidents") {
        let (blocks, _) = track(&processes[name], "fleet.rank.");
        let (operations, _) = track(&processes[name], "nccl.collective.");
        assert!(blocks + operations > 10, "{name}: {blocks} {operations}");
    }
    let names: Vec<&str> = processes.keys().map(String::as_str).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[2].starts_with("rank 2 on "), "{names:?}");
}
