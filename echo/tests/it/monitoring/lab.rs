//! An instance to monitor: with TLS, authentication, and a rank that holds back its peers.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::testbed::{ECHO, Echo, agent, lines, recording, repository, summary, wait_for};

/// End of the replay: in the middle of the fault, so that its incident stays open.
const DURING_THE_FAULT_NS: i64 = 222_000_000_000;

/// Duration of what is replayed, seconds.
const RECORDED_S: i64 = 148;

/// An instance, and a folder with its certificates, tokens and database.
pub(crate) struct Lab {
    pub(crate) echo: Echo,
    folder: TempDir,
}

impl Lab {
    /// Starts an instance in which rank 2 of the cluster `lab` is late now.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tls = folder.path().join("tls").display().to_string();
        run(&["dev-cert", "--dir", &tls]);
        let mut access = "tokens:\n".to_owned();
        for (id, flags) in [
            ("scraper", ["--cluster", "*"].as_slice()),
            ("agents", &["--write", "--cluster", "lab"]),
        ] {
            let printed = run(&[["token", "new", "--id", id].as_slice(), flags].concat());
            let (token, entry) = printed.split_once('\n').unwrap();
            std::fs::write(folder.path().join(id), token).unwrap();
            let often = "rate: { per_second: 1000, burst: 1000 }";
            writeln!(access, "{}\n    {often}", entry.trim_end()).unwrap();
        }
        std::fs::write(folder.path().join("access.yaml"), access).unwrap();
        let lab = Self {
            echo: serve(&folder),
            folder,
        };
        lab.replay();
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn token(&self) -> String {
        std::fs::read_to_string(self.path("scraper")).unwrap()
    }

    /// Sends a request with the token of the scraper. Returns status and body.
    pub(crate) fn curl(&self, path: &str, body: Option<&str>) -> (u16, String) {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--write-out", "\n%{http_code}", "--cacert"])
            .arg(self.path("tls/ca.pem"))
            .arg("--header")
            .arg(format!("Authorization: Bearer {}", self.token()))
            .arg(format!("https://{}{path}", self.echo.http));
        if let Some(body) = body {
            curl.args(["--header", "Content-Type: application/json", "--data", body]);
        }
        let output = curl.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    /// Returns the metrics as text.
    pub(crate) fn metrics(&self) -> String {
        let (status, text) = self.curl("/metrics", None);
        assert_eq!(status, 200, "{text}");
        text
    }

    /// Replays the recording until the middle of the fault, without clock errors.
    fn replay(&self) {
        let cut_off = self.path("during-the-fault.jsonl");
        let happened = |line: &String| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["ts"]
                .as_i64()
                .is_none_or(|at| at < DURING_THE_FAULT_NS)
        };
        let kept = lines(&recording("host-sleep-rank2"))
            .into_iter()
            .filter(happened);
        let text: Vec<String> = kept.collect();
        std::fs::write(&cut_off, text.join("\n")).unwrap();
        // All agents must run before the first is waited for. The recording ends about now.
        let begin = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(RECORDED_S);
        let agent = |rank| self.agent(&cut_off, rank, begin);
        let agents: Vec<Child> = (0..4).map(agent).collect();
        for agent in agents {
            summary(&agent.wait_with_output().unwrap());
        }
        let open = r#"echo_outlier_ranks{cluster="lab",class="host",state="open"} 1"#;
        wait_for("rank 2 to be reported", || self.metrics().contains(open));
    }

    fn agent(&self, recording: &PathBuf, rank: u32, begin: jiff::Timestamp) -> Child {
        let mut command = Command::new(agent());
        command
            .arg("replay")
            .arg(recording)
            .args(["--endpoint", &format!("https://{}", self.echo.otlp)])
            .args(["--cluster", "lab", "--node-per-rank", "--json"])
            .args(["--only-rank", &rank.to_string()])
            .args(["--start-at", &begin.to_string()])
            .args(["--block-target", "200ms", "--speed", "40"])
            .arg("--tls-ca")
            .arg(self.path("tls/ca.pem"))
            .arg("--token-file")
            .arg(self.path("agents"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

fn serve(folder: &TempDir) -> Echo {
    let mut command = Command::new(ECHO);
    command
        .args(["serve", "--db"])
        .arg(folder.path().join("fleet.duckdb"));
    for flag in ["--otlp-listen", "--otlp-http-listen", "--http-listen"] {
        command.args([flag, "127.0.0.1:0"]);
    }
    for (flag, file) in [
        ("--tls-cert", "tls/cert.pem"),
        ("--tls-key", "tls/key.pem"),
        ("--access", "access.yaml"),
    ] {
        command.arg(flag).arg(folder.path().join(file));
    }
    command
        .arg("--rates")
        .arg(repository("testdata/rates.yaml"))
        .args(["--log", "warn", "--commit-every", "1ms"])
        // The only shard, so that metrics of sharding are exposed, too.
        .args(["--shard", "fleet-echo-0", "--shards", "1"])
        .args(["--shard-url", "https://echo-{shard}.example"])
        .stdin(Stdio::null());
    Echo::spawn(command).0
}

/// Runs `fleet-echo`, which must succeed, and returns its output.
fn run(arguments: &[&str]) -> String {
    let output = Command::new(ECHO).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}
