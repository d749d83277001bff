//! A server with certificates, tokens and an access file, and its clients.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::testbed::{ECHO, Echo, agent, recording, repository};

/// Nodes of the recording.
const NODES: [&str; 4] = ["node-0", "node-1", "node-2", "node-3"];

/// Folder of certificates, tokens, access file, audit log and database.
pub(super) struct Site {
    folder: TempDir,
}

/// Runs `fleet-echo`, which must succeed.
pub(super) fn run(arguments: &[&str]) -> Output {
    let output = Command::new(ECHO).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    output
}

impl Site {
    pub(super) fn new() -> Self {
        let site = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        site.certify();
        site.authorize(&[
            ("grafana", &["--sql"]),
            ("tenant", &["--cluster", "lab"]),
            ("agents", &["--write", "--cluster", "lab"]),
        ]);
        site
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Generates a certificate authority and certificates.
    fn certify(&self) {
        let folder = self.text("tls");
        let mut arguments = vec!["dev-cert", "--force", "--dir", &folder];
        for node in NODES {
            arguments.extend(["--agent", node]);
        }
        run(&arguments);
    }

    /// Creates a token for each caller, in a file of its name, and an access file with these
    /// tokens.
    fn authorize(&self, callers: &[(&str, &[&str])]) {
        let mut yaml = "tokens:\n".to_owned();
        for (id, flags) in callers {
            let output = run(&[["token", "new", "--id", id].as_slice(), flags].concat());
            let printed = String::from_utf8(output.stdout).unwrap();
            let (token, entry) = printed.split_once('\n').unwrap();
            std::fs::write(self.path(id), token).unwrap();
            yaml.push_str(entry.trim_end());
            // Tests poll.
            yaml.push_str("\n    rate: { per_second: 1000, burst: 1000 }\n");
        }
        std::fs::write(self.path("access.yaml"), yaml).unwrap();
    }

    pub(super) fn serve(&self, flags: &[&str]) -> Echo {
        let mut command = Command::new(ECHO);
        command
            .args(["serve", "--db"])
            .arg(self.path("fleet.duckdb"));
        for flag in ["--otlp-listen", "--otlp-http-listen", "--http-listen"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        command
            .args(["--tls-cert", &self.text("tls/cert.pem")])
            .args(["--tls-key", &self.text("tls/key.pem")])
            .args(["--access", &self.text("access.yaml")])
            .arg("--rates")
            .arg(repository("testdata/rates.yaml"))
            .args(["--log", "warn", "--commit-every", "1ms"])
            .args(flags)
            .stdin(Stdio::null());
        Echo::spawn(command).0
    }

    #[expect(
        clippy::needless_collect,
        reason = "all agents must run before the first is waited for"
    )]
    /// Replays all ranks of a recording, each with the certificate of its node.
    pub(super) fn replay(&self, echo: &Echo, cluster: &str) -> Vec<Output> {
        let agents: Vec<_> = NODES
            .iter()
            .enumerate()
            .map(|(rank, node)| {
                Command::new(agent())
                    .arg("replay")
                    .arg(recording("host-sleep-rank2"))
                    .args(["--endpoint", &format!("https://{}", echo.otlp)])
                    .args(["--cluster", cluster, "--node-per-rank"])
                    .args(["--only-rank", &rank.to_string(), "--speed", "50", "--json"])
                    .args([
                        "--block-target",
                        "200ms",
                        "--start-at",
                        "2026-11-01T12:00:00Z",
                    ])
                    .args(["--tls-ca", &self.text("tls/ca.pem")])
                    .args(["--tls-cert", &self.text(&format!("tls/agent-{node}.pem"))])
                    .args([
                        "--tls-key",
                        &self.text(&format!("tls/agent-{node}-key.pem")),
                    ])
                    .args(["--token-file", &self.text("agents")])
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let ended = agents
            .into_iter()
            .map(|agent| agent.wait_with_output().unwrap());
        ended.collect()
    }

    /// Runs a client command with a token, or without one.
    pub(super) fn client(&self, echo: &Echo, token: Option<&str>, arguments: &[&str]) -> Output {
        let mut command = Command::new(ECHO);
        command
            .args(arguments)
            .args(["--server", &format!("https://{}", echo.http)])
            .args(["--tls-ca", &self.text("tls/ca.pem")]);
        if let Some(token) = token {
            command.args(["--token-file", &self.text(token)]);
        }
        command.output().unwrap()
    }

    /// Returns the lines of the audit log.
    pub(super) fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("audit.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// Returns the metrics of an instance.
pub(super) fn metrics(echo: &Echo, token: &str) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--insecure", "--header"])
        .arg(format!("Authorization: Bearer {token}"))
        .arg(format!("https://{}/metrics", echo.http))
        .output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// Returns everything that a program printed.
pub(super) fn printed(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}
