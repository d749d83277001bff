//! The OpenTelemetry SDK for Python, installed from the package index, as a client.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::testbed::{Echo, repository};

/// Version of the SDK, also part of the name of its folder.
const VERSION: &str = "1.45.2";

/// Packages that a program needs to send metrics over OTLP/gRPC.
const PACKAGES: [&str; 2] = [
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp-proto-grpc",
];

/// Returns the Python of a virtual environment with the SDK, created once in the target folder.
fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("otel-sdk-{VERSION}"));
    let python = folder.join("bin/python");
    let ready = folder.join("ready");
    if !ready.is_file() {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder));
        let packages = PACKAGES.map(|package| format!("{package}=={VERSION}"));
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet"])
            .args(packages));
        std::fs::write(ready, "").unwrap();
    }
    python
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
}

#[test]
fn gauges_of_the_opentelemetry_sdk_are_returned_by_the_event_history() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    run(Command::new(python())
        .arg(repository("testdata/otel_sdk_client.py"))
        .env(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            format!("http://{}", echo.otlp),
        ));
    let input =
        json!({ "cluster": "sdk-cluster", "metric": "ingero.node.health_score", "window": "all" });
    let (status, answer) = echo.post("fleet.cluster.event_history", &input);
    assert_eq!(status, 200, "{answer}");
    let events = answer["events"].as_array().unwrap();
    let ranks: Vec<i64> = {
        let mut ranks: Vec<i64> = events
            .iter()
            .map(|event| event["rank"].as_i64().unwrap())
            .collect();
        ranks.sort_unstable();
        ranks
    };
    assert_eq!(ranks, [0, 1, 2], "{answer:#}");
    for event in events {
        assert_eq!(event["cluster_id"], "sdk-cluster");
        assert_eq!(event["node_id"], "sdk-node");
        assert_eq!(event["nranks"], 3);
        let rank = event["rank"].as_f64().unwrap();
        assert_eq!(event["value_double"], Value::from(0.25 * (rank + 1.0)));
    }
}
