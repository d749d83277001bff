//! Starts Echo and agents as processes for the tests, on free ports, each Echo with a database of
//! its own.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

pub(crate) mod filled;
pub(crate) mod namespace;

/// Path of the program under test.
pub(crate) const ECHO: &str = env!("CARGO_BIN_EXE_fleet-echo");

/// Returns a port for a program that cannot choose one itself, another one at each call. It is below those
/// that the kernel gives to connections: one of them could be taken by a connection of another test
/// before the program listens.
pub(crate) fn free_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let first = (std::process::id() * 8 + call) % 12_000;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (20_000 + u16::try_from(first).unwrap()..32_767)
        .find(is_free)
        .unwrap()
}

/// Returns the path of the agent, which `make test` builds next to Echo.
pub(crate) fn agent() -> PathBuf {
    let agent = Path::new(ECHO).with_file_name("fleet-agent");
    assert!(
        agent.is_file(),
        "no agent at {}: run `cargo build --bins`",
        agent.display()
    );
    agent
}

/// Returns the path of a file or folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Returns all files of a folder of the repository, including its subfolders.
pub(crate) fn files_below(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![repository(folder)];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

/// Returns the path of a recording.
pub(crate) fn recording(name: &str) -> PathBuf {
    repository("testdata/recordings").join(format!("{name}.jsonl.gz"))
}

/// A running `fleet-echo serve`, killed on drop.
pub(crate) struct Echo {
    child: Child,
    /// Address of the listener for OTLP over gRPC.
    pub(crate) otlp: String,
    /// Address of the listener for OTLP over HTTP.
    pub(crate) otlp_http: String,
    /// Address of the HTTP listener.
    pub(crate) http: String,
}

impl Echo {
    /// Starts Echo on the database and waits until it is ready.
    pub(crate) fn serve(db: &Path) -> Self {
        Self::serve_with(db, &[])
    }

    /// Starts Echo with additional flags, which override the usual ones.
    pub(crate) fn serve_with(db: &Path, flags: &[&str]) -> Self {
        let mut command = serve_command(db);
        command.args(flags);
        Self::ready(command)
    }

    /// Starts Echo from a command, with its standard error in a file.
    pub(crate) fn spawn(mut command: Command) -> (Self, NamedTempFile) {
        let log = NamedTempFile::new().unwrap();
        command.stderr(log.reopen().unwrap());
        (Self::ready(command), log)
    }

    fn ready(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut ready)
            .unwrap();
        let word = |name: &str| {
            let value = ready
                .split_whitespace()
                .find_map(|word| word.strip_prefix(name));
            value
                .unwrap_or_else(|| panic!("no {name} in {ready:?}"))
                .to_owned()
        };
        Self {
            otlp: word("otlp="),
            otlp_http: word("otlp-http="),
            http: word("http="),
            child,
        }
    }

    /// Id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until Echo exits by itself, and returns its exit code.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Sends SIGTERM.
    pub(crate) fn send_sigterm(&self) {
        self.signal("TERM");
    }

    /// Sends a signal, given by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Sends SIGTERM, waits until Echo has drained, and returns its exit code.
    pub(crate) fn terminate(mut self) -> i32 {
        self.send_sigterm();
        self.child.wait().unwrap().code().unwrap()
    }

    /// Calls a tool. Returns status and body.
    pub(crate) fn post(&self, tool: &str, input: &Value) -> (u16, Value) {
        let url = format!("http://{}/api/v1/tools/{tool}", self.http);
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build();
        let mut response = ureq::Agent::new_with_config(config)
            .post(&url)
            .send_json(input)
            .unwrap();
        (
            response.status().as_u16(),
            response.body_mut().read_json().unwrap(),
        )
    }

    /// Calls a tool for all events of a cluster.
    pub(crate) fn query(&self, tool: &str, cluster: &str) -> Value {
        let tool = format!("fleet.cluster.{tool}");
        let (status, answer) = self.post(&tool, &json!({ "cluster": cluster, "window": "all" }));
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Waits until the detector has processed all stored events.
    pub(crate) fn caught_up(&self) {
        let health = || -> Value {
            let url = format!("http://{}/api/v1/health", self.http);
            ureq::get(&url)
                .call()
                .unwrap()
                .body_mut()
                .read_json()
                .unwrap()
        };
        wait_for("the detector to process the stored events", || {
            let health = health();
            health["events_queued"] == 0 && health["events_judged"] == health["events_committed"]
        });
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // The process has already ended if the test stopped it.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns the command `fleet-echo serve` on the database and free ports.
pub(crate) fn serve_command(db: &Path) -> Command {
    let mut command = Command::new(ECHO);
    command
        .args(["serve", "--insecure-no-tls", "--db"])
        .arg(db)
        .args([
            "--otlp-listen",
            "127.0.0.1:0",
            "--otlp-http-listen",
            "127.0.0.1:0",
            "--http-listen",
            "127.0.0.1:0",
        ])
        .arg("--rates")
        .arg(repository("testdata/rates.yaml"))
        .args(["--log", "warn"])
        // Most tests send one batch after the other.
        .args(["--commit-every", "1ms"])
        // On a busy machine, queries of this build take longer than the usual deadline. A flag of the test
        // overrides it.
        .env("FLEET_ECHO_QUERY_DEADLINE", "50s")
        .stdin(Stdio::null());
    command
}

/// Returns the command of an agent that replays one rank of a recording as a separate host, with
/// 200 ms blocks and a clock error of up to 10 s.
pub(crate) fn replay_command(recording: &Path, rank: u32, otlp: &str, cluster: &str) -> Command {
    let mut command = Command::new(agent());
    command
        .arg("replay")
        .arg(recording)
        .args([
            "--endpoint",
            &format!("http://{otlp}"),
            "--cluster",
            cluster,
        ])
        .args(["--node-per-rank", "--only-rank", &rank.to_string()])
        .args(["--clock-skew", clock_skew(recording)])
        .arg("--json")
        .args(["--start-at", "2026-11-01T12:00:00Z"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Largest error of the clocks of a replay: little where ranks have no communicator in common, because
/// what is compared then depends on how they are aligned by way of others.
fn clock_skew(recording: &Path) -> &'static str {
    let is_mesh = recording.to_string_lossy().contains("mesh");
    if is_mesh { "100ms" } else { "10s" }
}

/// Replays all four ranks of a recording concurrently. Returns the summaries of the agents.
pub(crate) fn replay_all(recording: &Path, echo: &Echo, cluster: &str, speed: &str) -> Vec<Value> {
    replay_ranks(recording, 4, echo, cluster, speed)
}

/// Replays a recording of `n_ranks` ranks with one agent per rank.
#[expect(
    clippy::needless_collect,
    reason = "all agents have to run before the first is waited for"
)]
pub(crate) fn replay_ranks(
    recording: &Path,
    n_ranks: u32,
    echo: &Echo,
    cluster: &str,
    speed: &str,
) -> Vec<Value> {
    let agents: Vec<Child> = (0..n_ranks)
        .map(|rank| {
            let mut command = replay_command(recording, rank, &echo.otlp, cluster);
            command.args(["--speed", speed]).spawn().unwrap()
        })
        .collect();
    agents
        .into_iter()
        .map(|agent| summary(&agent.wait_with_output().unwrap()))
        .collect()
}

/// Returns the summary printed by an agent, which must have succeeded.
pub(crate) fn summary(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the uncompressed lines of a recording.
pub(crate) fn lines(recording: &Path) -> Vec<String> {
    let mut text = String::new();
    let file = std::fs::File::open(recording).unwrap();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Waits up to a minute for a condition.
#[expect(
    clippy::disallowed_methods,
    reason = "the condition lies in another process"
)]
pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        let waited = begun.elapsed();
        assert!(
            waited < Duration::from_mins(1),
            "waited a minute for {what}"
        );
        // A condition is a query, which takes time from the processes that are waited for.
        let pause = (waited / 10).clamp(Duration::from_millis(20), Duration::from_millis(200));
        std::thread::sleep(pause);
    }
}
