//! Instance of `fleet-echo serve` with its own database, and its metrics.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::process::Process;

/// Timeout for the detector to read the stored events.
const CATCH_UP: Duration = Duration::from_mins(10);

/// Running instance.
#[derive(Debug)]
pub(crate) struct Echo {
    /// The process.
    pub(crate) process: Process,
    /// Address for OTLP over gRPC.
    pub(crate) otlp: String,
    http: String,
    folder: TempDir,
}

impl Echo {
    /// Starts an instance on an empty database with further flags.
    pub(crate) fn start(program: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = serve(program);
        command.arg("--db").arg(database(&folder)).args(flags);
        for listener in ["--otlp-listen", "--otlp-http-listen"] {
            command.args([listener, "127.0.0.1:0"]);
        }
        let (process, ready) = Process::start_ready(&mut command)?;
        Ok(Self {
            otlp: address(&ready, "otlp=")?,
            http: address(&ready, "http=")?,
            process,
            folder,
        })
    }

    /// Starts a server that only reads the lake of these flags.
    pub(crate) fn start_reader(program: &Path, lake: &[String]) -> anyhow::Result<Self> {
        let mut command = serve(program);
        let (process, ready) = Process::start_ready(command.arg("--read-only").args(lake))?;
        Ok(Self {
            otlp: String::new(),
            http: address(&ready, "http=")?,
            process,
            folder: tempfile::tempdir()?,
        })
    }

    /// Waits until the detector has read all stored events.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < CATCH_UP {
            let health: Value = serde_json::from_str(&self.get("api/v1/health")?)?;
            if health.get("events_judged") == health.get("events_committed") {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
        bail!("the detector has not caught up in {CATCH_UP:?}");
    }

    /// Queries the outliers of a cluster; returns the latency.
    pub(crate) fn find_outliers(&self, cluster: &str) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        self.call(
            "fleet.cluster.find_outlier_nodes",
            &json!({ "cluster": cluster }),
        )?;
        Ok(begin.elapsed())
    }

    /// Address of the page of a cluster.
    pub(crate) fn page(&self, cluster: &str) -> String {
        format!("http://{}/clusters/{cluster}", self.http)
    }

    /// Calls a tool, and reads its answer.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> anyhow::Result<()> {
        let url = format!("http://{}/api/v1/tools/{tool}", self.http);
        let mut response = ureq::post(&url).send_json(arguments)?;
        let _answer: Value = response.body_mut().read_json()?;
        Ok(())
    }

    /// Sum of a metric over its labels.
    pub(crate) fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let text = self.get("metrics")?;
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let is_whole_name = rest.starts_with([' ', '{']);
            let (_, value) = is_whole_name.then(|| rest.rsplit_once(' '))??;
            value.parse::<f64>().ok()
        });
        let values: Vec<f64> = values.collect();
        if values.is_empty() {
            bail!("Echo has no metric {name}");
        }
        Ok(values.iter().sum())
    }

    /// Size of the database and its log, MB.
    pub(crate) fn file_mb(&self) -> f64 {
        let wal = database(&self.folder).with_extension("duckdb.wal");
        let sizes = [database(&self.folder), wal].map(|path| {
            // The log exists only between two checkpoints.
            path.metadata().map_or(0, |metadata| metadata.len())
        });
        mega(sizes.iter().sum())
    }

    fn get(&self, path: &str) -> anyhow::Result<String> {
        let url = format!("http://{}/{path}", self.http);
        Ok(ureq::get(&url).call()?.body_mut().read_to_string()?)
    }
}

/// A server without its addresses for OTLP and its data.
fn serve(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "--insecure-no-tls", "--log", "warn"]);
    command.args(["--http-listen", "127.0.0.1:0"]);
    command.stderr(Stdio::inherit());
    command
}

fn address(ready: &str, name: &str) -> anyhow::Result<String> {
    let mut words = ready.split_whitespace();
    let value = words.find_map(|word| word.strip_prefix(name));
    let value = value.with_context(|| format!("no {name} in {ready:?}"))?;
    Ok(value.to_owned())
}

fn database(folder: &TempDir) -> PathBuf {
    folder.path().join("echo.duckdb")
}

#[expect(clippy::cast_precision_loss, reason = "a size to read by eye")]
fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
