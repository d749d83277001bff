//! Real processes for the tests: an Echo on free ports with a database of its own, and agents.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

pub(crate) mod namespace;

/// The program under test.
pub(crate) const ECHO: &str = env!("CARGO_BIN_EXE_fleet-echo");

/// The agent, which `make test` builds beside Echo.
pub(crate) fn agent() -> PathBuf {
    let agent = Path::new(ECHO).with_file_name("fleet-agent");
    assert!(
        agent.is_file(),
        "no agent at {}: run `cargo build --bins`",
        agent.display()
    );
    agent
}

/// A file or folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The recording with that name.
pub(crate) fn recording(name: &str) -> PathBuf {
    repository("testdata/recordings").join(format!("{name}.jsonl.gz"))
}

/// A running `fleet-echo serve`, killed when it is dropped.
pub(crate) struct Echo {
    child: Child,
    /// Address of the OTLP listener.
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

    /// The same with further flags, which win over the usual ones.
    pub(crate) fn serve_with(db: &Path, flags: &[&str]) -> Self {
        let mut command = serve_command(db);
        command.args(flags);
        Self::ready(command)
    }

    /// The same from a command, with what it says on standard error in a file.
    pub(crate) fn spawn(mut command: Command) -> (Self, NamedTempFile) {
        let said = NamedTempFile::new().unwrap();
        command.stderr(said.reopen().unwrap());
        (Self::ready(command), said)
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

    /// SIGKILL: no chance to say goodbye.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for Echo to end by itself, and gives the exit code.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// SIGTERM.
    pub(crate) fn ask_to_stop(&self) {
        self.signal("TERM");
    }

    /// A signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// SIGTERM, and the exit code after it has drained.
    pub(crate) fn terminate(mut self) -> i32 {
        self.ask_to_stop();
        self.child.wait().unwrap().code().unwrap()
    }

    /// Asks a tool and returns status and body.
    pub(crate) fn post(&self, tool: &str, question: &Value) -> (u16, Value) {
        let url = format!("http://{}/api/v1/tools/{tool}", self.http);
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build();
        let mut response = ureq::Agent::new_with_config(config)
            .post(&url)
            .send_json(question)
            .unwrap();
        (
            response.status().as_u16(),
            response.body_mut().read_json().unwrap(),
        )
    }

    /// Asks a tool about everything it knows of a cluster.
    pub(crate) fn ask(&self, tool: &str, cluster: &str) -> Value {
        let tool = format!("fleet.cluster.{tool}");
        let (status, answer) = self.post(&tool, &json!({ "cluster": cluster, "window": "all" }));
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Waits until Echo has judged everything it has stored.
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
        wait_for("Echo to judge what it stored", || {
            let health = health();
            health["events_judged"] == health["events_committed"]
        });
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // Already gone when the test ended it itself.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// `fleet-echo serve` on the database and free ports.
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
        .stdin(Stdio::null());
    command
}

/// An agent replaying one rank of a recording as a host of its own, with 200 ms blocks and a clock up to 10 s wrong.
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
        .args(["--clock-skew", "10s", "--block-target", "200ms", "--json"])
        .args(["--start-at", "2026-11-01T12:00:00Z"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Replays all four ranks of a recording at the same time, and returns the agents' summaries.
pub(crate) fn replay_all(recording: &Path, echo: &Echo, cluster: &str, speed: &str) -> Vec<Value> {
    replay_ranks((recording, 4), echo, cluster, speed)
}

/// Replays a recording of so many ranks, each by an agent of its own.
#[expect(
    clippy::needless_collect,
    reason = "all agents have to run before the first is waited for"
)]
pub(crate) fn replay_ranks(
    (recording, n_ranks): (&Path, u32),
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

/// The summary that an agent printed.
pub(crate) fn summary(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The uncompressed lines of a recording.
pub(crate) fn lines(recording: &Path) -> Vec<String> {
    let mut text = String::new();
    let file = std::fs::File::open(recording).unwrap();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Waits for a condition, for at most a minute.
#[expect(
    clippy::disallowed_methods,
    reason = "the condition lies in another process"
)]
pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_mins(1);
    while !condition() {
        assert!(
            std::time::Instant::now() < deadline,
            "waited a minute for {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
