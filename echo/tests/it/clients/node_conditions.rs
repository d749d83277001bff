//! What Kubernetes gets for a recorded fault: a stand-in for the API server merges the patches, and
//! the schemas of several Kubernetes versions validate the node and the events.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use fleet_test_harness::{NIGHTLY, PYPI};
use serde_json::{Value, json};

use super::kubernetes::{MINORS, SCHEMAS};
use super::{done, python_with};
use crate::actions::replay;
use crate::testbed::{Echo, wait_for};

/// The node and the events, as the API server would keep them.
#[derive(Debug, Default)]
struct Kept {
    conditions: BTreeMap<String, Value>,
    taints: Vec<Value>,
    /// Numbers of taints after each patch.
    taint_counts: Vec<usize>,
    events: Vec<Value>,
    unexpected: Vec<String>,
}

impl Kept {
    fn node(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": "node-2", "uid": "u-2", "resourceVersion": "7" },
            "spec": { "taints": self.taints },
            "status": { "conditions": self.conditions.values().collect::<Vec<_>>() },
        })
    }

    /// Answers a request as the API server does: conditions are merged by type, taints replaced.
    fn answer(&mut self, line: &str, body: &Value) -> (u16, Value) {
        match line {
            "PATCH /api/v1/nodes/node-2/status" => {
                for condition in body["status"]["conditions"].as_array().unwrap() {
                    let kind = condition["type"].as_str().unwrap().to_owned();
                    let known = self.conditions.entry(kind).or_insert_with(|| json!({}));
                    for (field, value) in condition.as_object().unwrap() {
                        known[field].clone_from(value);
                    }
                }
                (200, self.node())
            }
            "GET /api/v1/nodes/node-2" => (200, self.node()),
            "PATCH /api/v1/nodes/node-2" if body["metadata"]["resourceVersion"] == "7" => {
                self.taints
                    .clone_from(body["spec"]["taints"].as_array().unwrap());
                self.taint_counts.push(self.taints.len());
                (200, self.node())
            }
            "POST /apis/events.k8s.io/v1/namespaces/default/events" => {
                self.events.push(body.clone());
                (201, body.clone())
            }
            _ => {
                self.unexpected.push(format!("{line} {body}"));
                (404, json!({}))
            }
        }
    }
}

/// Reads a request, and answers it.
fn serve(mut stream: TcpStream, kept: &Mutex<Kept>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut request = String::new();
    reader.read_line(&mut request).unwrap();
    let words: Vec<&str> = request.split_whitespace().take(2).collect();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let (status, answer) = kept.lock().unwrap().answer(&words.join(" "), &body);
    let (text, length) = (answer.to_string(), answer.to_string().len());
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n");
    stream
        .write_all(format!("{head}\r\n{text}").as_bytes())
        .unwrap();
}

fn start() -> (String, Arc<Mutex<Kept>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let kept = Arc::<Mutex<Kept>>::default();
    let shared = Arc::clone(&kept);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream, &shared);
        }
    });
    (url, kept)
}

/// Validates objects with the schemas of each version.
fn validate(objects: &[Value], folder: &Path) {
    let file = folder.join("objects.yaml");
    let documents: Vec<String> = objects.iter().map(ToString::to_string).collect();
    std::fs::write(&file, documents.join("\n---\n")).unwrap();
    for minor in MINORS {
        let mut validate = python_with(&[SCHEMAS], "kubernetes-validate");
        validate.args(["--strict", "--no-warn", "-k", minor]);
        let validated = done(validate.arg(&file), minor);
        let output = [validated.stdout, validated.stderr].concat();
        let output = String::from_utf8(output).unwrap();
        let passed = output.matches("passed for resource").count();
        assert_eq!(passed, objects.len(), "{output}");
    }
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn kubernetes_gets_a_condition_events_and_a_taint_that_its_schemas_accept() {
    let (url, kept) = start();
    kept.lock()
        .unwrap()
        .taints
        .push(json!({ "key": "gpu", "effect": "NoSchedule" }));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "tok").unwrap();
    let policy = folder.path().join("actions.yaml");
    let text = format!(
        "limits: {{ max_percent: 25 }}
consumers:
  nodes: {{ mode: act, kubernetes: {{ server: {url}, token_file: token, ca_file: ca, taint: true }} }}
rules: [{{ consumers: [nodes], min_severity: info, open_for: 0s }}]\n"
    );
    std::fs::write(&policy, text).unwrap();
    let policy = policy.display().to_string();
    let echo = Echo::serve_with(&folder.path().join("db"), &["--actions", &policy]);
    replay("host-sleep-rank2", &echo);
    let is_cleared = |event: &Value| event["reason"] == "StragglerCleared";
    wait_for("the last event", || {
        kept.lock().unwrap().events.iter().any(is_cleared)
    });
    let kept = kept.lock().unwrap();
    assert!(kept.unexpected.is_empty(), "{:?}", kept.unexpected);
    let condition = &kept.conditions["GpuStraggler"];
    assert_eq!(condition["status"], "False", "{condition}");
    assert_eq!(kept.taint_counts, [2, 1]);
    assert_eq!(kept.events[0]["type"], "Warning");
    let objects: Vec<Value> = [kept.node()]
        .into_iter()
        .chain(kept.events.clone())
        .collect();
    drop(kept);
    validate(&objects, folder.path());
}
