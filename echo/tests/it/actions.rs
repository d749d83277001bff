//! Actions: `fleet-echo actions check`, a recorded fault that drains its node and resumes it, a hang
//! ([`hang`]), and deliveries across a kill ([`killed`]).

mod hang;
mod killed;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;

use crate::testbed::{ECHO, Echo, agent, recording, serve_command, wait_for};

/// A receiver of webhooks that keeps what it gets.
struct Receiver {
    /// Address.
    url: String,
    requests: Arc<Mutex<Vec<Received>>>,
    is_refusing: Arc<AtomicBool>,
}

/// A request to a receiver.
#[derive(Debug, Clone)]
struct Received {
    key: String,
    body: Value,
    is_accepted: bool,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<Received>>>::default();
        let is_refusing = Arc::<AtomicBool>::default();
        let (received, refusing) = (Arc::clone(&requests), Arc::clone(&is_refusing));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let is_accepted = !refusing.load(Ordering::SeqCst);
                let request = receive(stream, is_accepted);
                received.lock().unwrap().push(request);
            }
        });
        Self {
            url,
            requests,
            is_refusing,
        }
    }

    fn requests(&self) -> Vec<Received> {
        self.requests.lock().unwrap().clone()
    }

    fn bodies(&self) -> Vec<Value> {
        let accepted = self.requests().into_iter().filter(|one| one.is_accepted);
        accepted.map(|one| one.body).collect()
    }
}

/// Reads a request and answers it.
fn receive(mut stream: TcpStream, is_accepted: bool) -> Received {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut key) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "idempotency-key" => value.trim().clone_into(&mut key),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let status = if is_accepted {
        "204 No Content"
    } else {
        "503 Service Unavailable"
    };
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    // An instance that was killed does not read it.
    let _gone = stream.write_all(answer.as_bytes());
    Received {
        key,
        body: serde_json::from_slice(&body).unwrap(),
        is_accepted,
    }
}

/// A program in place of `scontrol` that keeps the state of each node in a folder.
fn scontrol(folder: &Path) -> PathBuf {
    let program = folder.join("scontrol");
    let text = format!(
        r#"#!/bin/sh
cd {}
case "$1" in
show)
  state=IDLE; [ -f "$3.reason" ] && state=IDLE+DRAIN
  echo "NodeName=$3 Arch=x86_64 State=$state Cores=8 Reason=$(cat "$3.reason" 2>/dev/null) [root@now]";;
update)
  echo "$*" >> updates
  node="${{2#NodeName=}}"
  if [ "$3" = State=DRAIN ]; then echo "${{4#Reason=}}" > "$node.reason"; else rm "$node.reason"; fi;;
esac
"#,
        folder.display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn check(file: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(ECHO);
    command.args(["actions", "check"]).arg(file).args(flags);
    command.output().unwrap()
}

/// Replays a recording slowly enough for its fault to last some seconds, so that it ends about now.
pub(crate) fn replay(name: &str, echo: &Echo) {
    let begin = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(190);
    let mut command = Command::new(agent());
    command
        .arg("replay")
        .arg(recording(name))
        .args(["--endpoint", &format!("http://{}", echo.otlp)])
        .args(["--cluster", "lab", "--node-per-rank", "--speed", "10"])
        .args(["--start-at", &begin.to_string()]);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

fn metrics(echo: &Echo) -> String {
    let url = format!("http://{}/metrics", echo.http);
    let mut response = ureq::get(&url).call().unwrap();
    response.body_mut().read_to_string().unwrap()
}

/// Writes a policy whose consumer `dry` is in shadow mode, and `queue` and `pager` are not.
fn policy(folder: &TempDir, receiver: &Receiver, scontrol: &Path) -> PathBuf {
    let path = folder.path().join("actions.yaml");
    let (program, url) = (scontrol.display(), &receiver.url);
    let text = format!(
        "limits: {{ max_nodes: 1, max_percent: 25 }}
consumers:
  dry: {{ slurm: {{ scontrol: {program} }} }}
  queue: {{ mode: act, slurm: {{ scontrol: {program} }} }}
  pager: {{ mode: act, webhook: {{ url: {url}, secret_file: pager.key }} }}
rules:
  - {{ consumers: [dry, queue, pager], clusters: [lab], min_severity: info, open_for: 0s }}
"
    );
    std::fs::write(folder.path().join("pager.key"), "secret").unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

/// Writes a policy that reports each rank to blame to a pager at once.
fn pager_policy(folder: &Path, receiver: &Receiver) -> PathBuf {
    let path = folder.join("actions.yaml");
    let text = format!(
        "limits: {{ max_nodes: 1, max_percent: 25 }}
consumers:
  pager: {{ mode: act, webhook: {{ url: {}, secret_file: pager.key }} }}
rules:
  - {{ consumers: [pager], clusters: [lab], min_severity: info, open_for: 0s }}
",
        receiver.url
    );
    std::fs::write(folder.join("pager.key"), "secret").unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

/// Lines of the audit log about a consumer.
fn audited(log: &Path, consumer: &str) -> Vec<Value> {
    let all = lines(log).into_iter();
    let all = all.map(|line| serde_json::from_str(&line).unwrap());
    all.filter(|line: &Value| line["consumer"] == consumer)
        .collect()
}

/// Checks the audit log: the shadow says what it would have done, and the others what they did.
fn assert_audited(log: &Path) {
    let dry = audited(log, "dry");
    let outcomes: Vec<&Value> = dry.iter().map(|line| &line["outcome"]).collect();
    assert_eq!(outcomes, ["shadow", "shadow"]);
    let queue = audited(log, "queue");
    let outcomes: Vec<&Value> = queue.iter().map(|line| &line["outcome"]).collect();
    assert_eq!(outcomes, ["sent", "sent"]);
    let would = dry[0]["would"].as_str().unwrap();
    assert!(
        would.contains("scontrol update NodeName=node-2 State=DRAIN"),
        "{would}"
    );
}

#[test]
fn a_recorded_fault_drains_its_node_in_shadow_and_for_real_and_is_undone_when_it_clears() {
    let folder = tempfile::tempdir().unwrap();
    let slurm = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    let policy = policy(&folder, &receiver, &scontrol(slurm.path()));
    let db = folder.path().join("fleet.duckdb");
    let audit = folder.path().join("audit.jsonl");
    let mut command = serve_command(&db);
    command.arg("--actions").arg(policy);
    command.arg("--audit-log").arg(&audit);
    let (echo, log) = Echo::spawn(command);
    replay("host-sleep-rank2", &echo);
    wait_for(
        "the node to be resumed and the pager to get the end",
        || lines(&slurm.path().join("updates")).len() >= 2 && receiver.bodies().len() >= 2,
    );
    // A line is written once its program has ended.
    wait_for("the resumed node in the audit log", || {
        audited(&audit, "queue").len() >= 2
    });

    let updates = lines(&slurm.path().join("updates"));
    assert_eq!(updates.len(), 2, "{updates:?}");
    let drain = "update NodeName=node-2 State=DRAIN Reason=[node_problem] straggler: rank 2, ";
    assert!(updates[0].starts_with(drain), "{updates:?}");
    assert_eq!(updates[1], "update NodeName=node-2 State=UNDRAIN");

    let bodies = receiver.bodies();
    let events: Vec<&Value> = bodies.iter().map(|body| &body["event"]).collect();
    assert_eq!(
        (events[0], events[events.len() - 1]),
        (&"raised".into(), &"cleared".into())
    );
    assert_eq!(bodies[0]["incident"]["node"], "node-2");
    assert!(
        bodies[0]["incident"]["advice"][0].is_string(),
        "{bodies:#?}"
    );

    assert_audited(&audit);
    let metrics = metrics(&echo);
    for line in [
        r#"echo_actions_total{consumer="dry",outcome="shadow"} 2"#,
        r#"echo_actions_total{consumer="queue",outcome="sent"} 2"#,
        r#"echo_actions_open{consumer="queue"} 0.0"#,
        "echo_actions_kill_switch 0.0",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    assert_eq!(
        echo.terminate(),
        0,
        "{}",
        std::fs::read_to_string(log.path()).unwrap()
    );
}

#[test]
fn a_policy_is_checked_by_the_command_and_before_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    let valid = policy(&folder, &receiver, &folder.path().join("scontrol"));
    let output = check(&valid, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("3 consumers, 1 rule"),
        "{text}"
    );
    assert!(
        text.contains("dry: slurm, shadow mode, at most 1 nodes"),
        "{text}"
    );
    let report: Value = serde_json::from_slice(&check(&valid, &["--json"]).stdout).unwrap();
    assert_eq!(report["consumers"][1]["mode"], "act", "{report}");

    let invalid = folder.path().join("invalid.yaml");
    std::fs::write(&invalid, "limits:\n  max_node: 3\n").unwrap();
    let output = check(&invalid, &["--json"]);
    assert_eq!(output.status.code(), Some(65));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("line 2") && stderr.contains("did you mean `max_nodes`?"),
        "{stderr}"
    );
    let missing = check(&folder.path().join("none.yaml"), &[]);
    assert_eq!(missing.status.code(), Some(64));

    let mut serve = serve_command(&folder.path().join("fleet.duckdb"));
    let output = serve.arg("--actions").arg(&invalid).output().unwrap();
    assert_eq!(output.status.code(), Some(65));
    assert!(String::from_utf8_lossy(&output.stderr).contains("max_nodes"));
}
