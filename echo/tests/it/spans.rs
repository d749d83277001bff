//! Spans of one instance, exported to another one.

use std::process::Command;

use serde_json::{Value, json};

use crate::testbed::{ECHO, Echo, recording, replay_all, serve_command};

const HISTORY: &str = "fleet.cluster.event_history";

/// Returns the number of spans with this name that an instance has stored.
fn n_spans(echo: &Echo, name: &str) -> usize {
    let input = json!({ "cluster": "echo", "metric": name, "window": "all", "limit": 100 });
    let (status, answer) = echo.post(HISTORY, &input);
    // The cluster is unknown before the first span.
    if status == 404 {
        return 0;
    }
    assert_eq!(status, 200, "{answer}");
    answer["events"].as_array().map_or(0, Vec::len)
}

#[test]
fn spans_of_an_instance_are_stored_by_another_instance() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Echo::serve(&folder.path().join("spans.duckdb"));
    let mut command = serve_command(&folder.path().join("fleet.duckdb"));
    let endpoint = format!("http://{}", collector.otlp);
    command.args(["--trace-endpoint", &endpoint, "--trace-sample", "1"]);
    let (echo, _log) = Echo::spawn(command);
    replay_all(&recording("healthy"), &echo, "lab", "max");
    let (status, _) = echo.post(HISTORY, &json!({ "cluster": "lab", "window": "all" }));
    assert_eq!(status, 200);
    // The remaining spans are sent at shutdown.
    assert_eq!(echo.terminate(), 0);
    for name in [
        "echo.ingest",
        "echo.ingest.decode",
        "echo.ingest.append",
        "echo.store.commit",
        "echo.detect",
        "echo.query",
    ] {
        assert!(n_spans(&collector, name) > 0, "{name}");
    }
    let input = json!({ "cluster": "echo", "metric": "echo.query", "window": "all" });
    let (_, answer) = collector.post(HISTORY, &input);
    let span: &Value = &answer["events"][0];
    assert!(span.to_string().contains(HISTORY), "{span}");
}

#[test]
fn an_instance_serves_and_stops_without_its_collector() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = serve_command(&folder.path().join("fleet.duckdb"));
    // No process listens on this port.
    command.args([
        "--trace-endpoint",
        "http://127.0.0.1:1",
        "--trace-sample",
        "1",
    ]);
    let (echo, _log) = Echo::spawn(command);
    replay_all(&recording("healthy"), &echo, "lab", "max");
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn an_instance_does_not_send_its_spans_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let endpoint = format!("http://localhost:{}", address.rsplit_once(':').unwrap().1);
    let output = Command::new(ECHO)
        .args(["serve", "--insecure-no-tls", "--db"])
        .arg(folder.path().join("fleet.duckdb"))
        .args([
            "--otlp-listen",
            &address,
            "--otlp-http-listen",
            "127.0.0.1:0",
        ])
        .args([
            "--http-listen",
            "127.0.0.1:0",
            "--trace-endpoint",
            &endpoint,
        ])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{stderr}");
    assert!(
        stderr.contains("is a listener of this instance"),
        "{stderr}"
    );
}
