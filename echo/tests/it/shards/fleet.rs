//! Three instances, each in its own network namespace, and agents of several clusters in another
//! one.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::process::{Child, Output, Stdio};

use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use super::network::Network;
use crate::testbed::{ECHO, Echo, agent, recording, wait_for};

/// Number of instances.
pub(super) const SHARDS: u32 = 3;

/// URL of the API of each shard.
pub(super) const URL: &str = "https://10.77.{shard}.1:8081";

/// By cluster, the number of stored points and of distinct ones.
pub(super) type Stored = BTreeMap<String, (u64, u64)>;

/// The instances and their network. The fields are dropped in order: the processes before their
/// namespaces.
pub(super) struct Fleet {
    instances: Vec<Option<(Echo, NamedTempFile)>>,
    network: Network,
    folder: TempDir,
}

/// Returns the names of the first `n` clusters that belong to a shard.
pub(super) fn clusters_of(shard: u32, n: usize) -> Vec<String> {
    let of_three = NonZeroU32::new(SHARDS).unwrap();
    let names = (0..).map(|number| format!("cluster-{number}"));
    let names = names.filter(|name| fleet_proto::shard::for_cluster(name, of_three) == shard);
    names.take(n).collect()
}

impl Fleet {
    /// Starts the instances.
    pub(super) fn start() -> Self {
        let network = Network::with_shards(SHARDS as usize);
        let mut fleet = Self {
            instances: Vec::new(),
            network,
            folder: tempfile::tempdir().unwrap(),
        };
        let tls = fleet.path("tls");
        let mut certify = std::process::Command::new(ECHO);
        certify.args(["dev-cert", "--dir", &tls]);
        for shard in 0..SHARDS {
            certify.args(["--name", &format!("10.77.{shard}.1")]);
        }
        assert!(certify.output().unwrap().status.success());
        for shard in 0..SHARDS as usize {
            let echo = fleet.serve(shard);
            fleet.instances.push(Some(echo));
        }
        fleet
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn serve(&self, shard: usize) -> (Echo, NamedTempFile) {
        let mut command = self.network.at(shard, ECHO);
        command.args(["serve", "--db", &self.path(&format!("{shard}.duckdb"))]);
        for (flag, port) in [
            ("--otlp-listen", 4317),
            ("--otlp-http-listen", 4318),
            ("--http-listen", 8081),
        ] {
            command.args([flag, &format!("10.77.{shard}.1:{port}")]);
        }
        command
            .args(["--tls-cert", &self.path("tls/cert.pem")])
            .args(["--tls-key", &self.path("tls/key.pem")])
            .args(["--insecure-no-auth", "--log", "warn"])
            // The format of the downward API of Kubernetes.
            .args(["--shard", &format!("fleet-echo-{shard}")])
            .args(["--shards", &SHARDS.to_string(), "--shard-url", URL])
            .stdin(Stdio::null());
        Echo::spawn(command)
    }

    /// Kills a shard with SIGKILL and starts it again.
    pub(super) fn restart(&mut self, shard: usize) {
        let (echo, _log) = self.instances[shard].take().unwrap();
        echo.kill();
        self.instances[shard] = Some(self.serve(shard));
    }

    /// Returns the log of a shard.
    pub(super) fn log(&self, shard: usize) -> String {
        let (_, log) = self.instances[shard].as_ref().unwrap();
        std::fs::read_to_string(log.path()).unwrap()
    }

    /// Starts an agent that replays four nodes of a cluster and is configured with this number of
    /// shards.
    pub(super) fn report(&self, cluster: &str, shards: u32) -> Child {
        let mut command = self.network.outside(agent());
        command
            .arg("replay")
            .arg(recording("host-sleep-rank2"))
            .args(["--endpoint", "https://10.77.{shard}.1:4317"])
            .args(["--shards", &shards.to_string(), "--cluster", cluster])
            .args(["--tls-ca", &self.path("tls/ca.pem"), "--node-per-rank"])
            .args(["--block-target", "200ms", "--speed", "8", "--json"])
            .args(["--start-at", "2026-11-01T12:00:00Z"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Runs a client command in the network of the agents.
    pub(super) fn shell(&self, arguments: &[&str]) -> Output {
        let mut command = self.network.outside(ECHO);
        command.args(arguments).stdin(Stdio::null());
        command.args(["--tls-ca", &self.path("tls/ca.pem")]);
        command.output().unwrap()
    }

    /// Starts the MCP proxy, which reads requests from standard input.
    pub(super) fn proxy(&self, server: &str) -> Child {
        let mut command = self.network.outside(ECHO);
        command.args(["mcp", "--stdio", "--server", server]);
        command.args(["--tls-ca", &self.path("tls/ca.pem")]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        piped.spawn().unwrap()
    }

    /// Sends a GET or POST request with `curl`. Returns status and body.
    pub(super) fn curl(&self, shard: u32, path: &str, body: Option<&Value>) -> (u16, String) {
        let mut curl = self.network.outside("curl");
        curl.args(["--silent", "--write-out", "\n%{http_code}"])
            .args(["--cacert", &self.path("tls/ca.pem")])
            .arg(format!("https://10.77.{shard}.1:8081{path}"));
        if let Some(body) = body {
            curl.args(["--header", "content-type: application/json", "--data"]);
            curl.arg(body.to_string());
        }
        let text = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    /// Calls a tool. Returns status and answer.
    pub(super) fn query(&self, shard: u32, tool: &str, input: &Value) -> (u16, Value) {
        let path = format!("/api/v1/tools/fleet.cluster.{tool}");
        let (status, body) = self.curl(shard, &path, Some(input));
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Returns the points stored by a shard. Points are identical if they differ only in the event
    /// id. Verdicts of agents are excluded, since they are log records, which agents count
    /// separately.
    pub(super) fn stored(&self, shard: u32) -> Stored {
        let sql = "SELECT cluster_id, sum(copies)::BIGINT, count(*)::BIGINT FROM (SELECT cluster_id, count(*) AS copies FROM events \
            WHERE metric_name <> 'fleet.straggler' GROUP BY cluster_id, node_id, rank, metric_name, comm_id, op, seq_first, \
            seq_last, timestamp_ns) AS points GROUP BY cluster_id";
        let (status, answer) = self.query(shard, "run_analysis", &json!({ "sql": sql }));
        assert_eq!(status, 200, "{answer}");
        let rows = answer["rows"].as_array().unwrap().iter();
        let row = |row: &Value| {
            let count = |at: usize| row[at].as_u64().unwrap();
            (row[0].as_str().unwrap().to_owned(), (count(1), count(2)))
        };
        rows.map(row).collect()
    }

    /// Returns the metric of stored points whose cluster belongs to another shard.
    pub(super) fn misrouted_points(&self, shard: u32) -> u64 {
        let (_, metrics) = self.curl(shard, "/metrics", None);
        let name = "echo_ingest_misrouted_points_total ";
        let mut counts = metrics.lines().filter_map(|line| line.strip_prefix(name));
        counts.next().unwrap().parse().unwrap()
    }

    /// Waits until the detector of a shard has processed all stored events.
    pub(super) fn caught_up(&self, shard: u32) {
        wait_for("the detector to process the stored events", || {
            let (_, health) = self.curl(shard, "/api/v1/health", None);
            let health: Value = serde_json::from_str(&health).unwrap();
            health["events_judged"] == health["events_committed"]
        });
    }
}
