//! The whole way: probes, agent, OTLP, Echo, and the answer that names the slow rank.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::Test;
use crate::fixture::{Gpu, Linking, agent};

pub(crate) const TESTS: &[Test] = &[(
    "a_slow_rank_is_named_by_echo_while_the_job_runs",
    slow_rank_is_named,
)];

/// The collector's program, which is built beside the agent's by `make test`.
pub(crate) fn program() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_fleet-agent")).with_file_name("fleet-echo")
}

/// An Echo that runs.
struct Echo {
    child: Child,
    otlp: String,
    http: String,
}

impl Echo {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(program());
        command
            .args(["serve", "--insecure-no-tls", "--db"])
            .arg(folder.join("echo.db"));
        for listen in ["--otlp-listen", "--otlp-http-listen", "--http-listen"] {
            command.args([listen, "127.0.0.1:0"]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("is ready") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "Echo ended");
        }
        let address = |name: &str| {
            let mut words = line.split_whitespace();
            words
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
                .unwrap()
                .to_owned()
        };
        let (otlp, http) = (address("otlp"), address("http"));
        Self { child, otlp, http }
    }

    /// The first outliers that it names.
    fn until_named(&self) -> Vec<Value> {
        loop {
            let answer = self.ask(
                "fleet.cluster.find_outlier_nodes",
                &json!({"cluster": "live"}),
            );
            let outliers = answer.map(|answer| answer["outliers"].as_array().unwrap().clone());
            if let Some(named) = outliers.filter(|outliers| !outliers.is_empty()) {
                return named;
            }
        }
    }

    /// Asks a tool; none while the cluster is not known.
    fn ask(&self, tool: &str, question: &Value) -> Option<Value> {
        let body = question.to_string();
        let mut stream = TcpStream::connect(&self.http).unwrap();
        write!(
            stream,
            "POST /api/v1/tools/{tool} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.http,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        if head.starts_with("HTTP/1.1 404") {
            return None;
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        Some(serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// An agent that is ended with its test.
struct Watching(Child);

impl Drop for Watching {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn slow_rank_is_named() {
    let gpu = Gpu::new();
    let echo = Echo::start(gpu.path());
    let endpoint = format!("http://{}", echo.otlp);
    let mut command = agent();
    command.args([
        "run",
        "--cluster=live",
        "--node=node-7",
        "--pin=none",
        "--interval=250ms",
        "--endpoint",
        &endpoint,
    ]);
    let mut watching = Watching(
        command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut said = BufReader::new(watching.0.stderr.take().unwrap());
    // It runs until it has been found out.
    let end = format!("end={}", gpu.gate("end").display());
    let job = gpu.job(
        Linking::Dynamic,
        4,
        0,
        &["step=4", "slow=2:8:300:1000000000", &end],
    );
    let libraries =
        ["libnccl.so.2", "libcudart.so.13"].map(|name| gpu.path().join(name).display().to_string());
    let mut log = String::new();
    while !libraries.iter().all(|path| log.contains(path)) {
        assert!(
            said.read_line(&mut log).unwrap() > 0,
            "the agent ended:\n{log}"
        );
    }
    job.go();

    let named = echo.until_named();
    assert_eq!(named.len(), 1, "{named:?}");
    let place = ["node_id", "rank", "role", "source"].map(|key| named[0][key].clone());
    assert_eq!(
        place,
        [json!("node-7"), json!(2), json!("culprit"), json!("host")],
        "{named:?}"
    );

    // What the agent lost is told to Echo, too, and here that is nothing.
    let question = json!({"cluster": "live", "metric": "fleet.agent.events_lost"});
    let lost = echo.ask("fleet.cluster.event_history", &question).unwrap();
    let counts: Vec<&Value> = lost["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["value_int"])
        .collect();
    assert!(
        !counts.is_empty() && counts.iter().all(|count| **count == 0),
        "{lost}"
    );
    std::fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
}
