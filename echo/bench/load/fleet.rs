//! A cluster of simulated agents on one instance, with concurrent queries.

use std::fs::{File, read_to_string};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::time::sleep;

use crate::echo::Echo;
use crate::process::Process;
use crate::programs::Programs;
use crate::samples::Samples;
use crate::table::{Table, millis, times, whole};
use crate::viewers::Viewers;

const CLUSTER: &str = "fleet-bench";

/// The simulated cluster.
#[derive(Debug, Args)]
pub(crate) struct Fleet {
    /// Nodes of 8 ranks, each with an agent and a connection, for --load
    #[arg(long, value_name = "N", default_value_t = 1_280)]
    nodes: u32,
    /// Interval at which an agent sends, for --load
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    interval: String,
    /// Viewers of the page of the cluster, who load it every 30 s, for --load
    #[arg(long, value_name = "N", default_value_t = 20)]
    viewers: u32,
}

/// Samples taken while the agents ran.
#[derive(Debug)]
struct Observed {
    queries: Histogram<u64>,
    failed_queries: u32,
    resident: Samples,
    file: Samples,
}

impl Fleet {
    /// Runs the cluster for `duration`; returns the table.
    pub(crate) async fn table(
        &self,
        programs: &Programs,
        duration: Duration,
        progress: &ProgressBar,
    ) -> anyhow::Result<String> {
        let echo = Echo::start(&programs.echo()?, &[])?;
        let output = NamedTempFile::new()?;
        let mut agents = self.agents(programs, &echo, duration, output.reopen()?)?;
        let viewers = Viewers::start(self.viewers, &echo.page(CLUSTER));
        let begin = Instant::now();
        let mut seen = Observed {
            queries: times()?,
            failed_queries: 0,
            resident: Samples::default(),
            file: Samples::default(),
        };
        while agents.runs()? {
            progress.set_message(format!("Fleet: {:.0?} of {duration:?}", begin.elapsed()));
            seen.sample(&echo, begin)?;
            sleep(Duration::from_secs(1)).await;
        }
        let viewed = viewers.end()?;
        let summary = summary(output.path())?;
        echo.settle().await?;
        let cells = seen.cells().into_iter().chain(viewed);
        self.report(&echo, &summary, cells.collect())
    }

    fn agents(
        &self,
        programs: &Programs,
        echo: &Echo,
        duration: Duration,
        output: File,
    ) -> anyhow::Result<Process> {
        let mut command = Command::new(programs.agent()?);
        command
            .args(["simulate", "--json", "--cluster", CLUSTER])
            .args(["--endpoint", &format!("http://{}", echo.otlp)])
            .args(["--nodes", &self.nodes.to_string(), "--ranks-per-node", "8"])
            .args(["--interval", &self.interval])
            .args(["--duration", &format!("{}s", duration.as_secs())])
            .stdout(output)
            .stderr(Stdio::null());
        Process::start(&mut command)
    }

    fn report(
        &self,
        echo: &Echo,
        summary: &Value,
        cells: Vec<(&str, String)>,
    ) -> anyhow::Result<String> {
        let description = format!(
            "`fleet-agent simulate`: {} ranks on {} nodes. Each node has an agent with its own connection that sends every \
             {}, to one instance on the same machine. `find_outlier_nodes` runs over HTTP each second, and {} viewers load the page of the cluster every 30 s. The agents time \
             acknowledgements from the closing of a batch, including all attempts.",
            whole((self.nodes * 8).into()),
            whole(self.nodes.into()),
            self.interval,
            self.viewers
        );
        let mut table = Table::new("A fleet of agents", &description, &["measurement", "value"]);
        for (name, value) in summary_cells(summary) {
            table.row(&[name.to_owned(), value]);
        }
        for (name, value) in cells {
            table.row(&[name.to_owned(), value]);
        }
        for (name, metric) in [
            (
                "requests that Echo failed",
                "echo_ingest_failed_requests_total",
            ),
            (
                "points that Echo rejected",
                "echo_ingest_rejected_points_total",
            ),
            ("repeated batches", "echo_ingest_repeated_batches_total"),
        ] {
            table.row(&[name.to_owned(), whole(echo.metric(metric)?)]);
        }
        let cpu = echo.process.cpu_seconds()?;
        let share = cpu / figure(summary, "took_s");
        let cpu = format!("{cpu:.1} s, {:.1} % of a core", share * 100.0);
        table.row(&["CPU of Echo".to_owned(), cpu]);
        Ok(table.end(""))
    }
}

/// Cells with the summary of the agents.
fn summary_cells(summary: &Value) -> [(&'static str, String); 4] {
    let number = |name: &str| whole(figure(summary, name));
    let ms = |name: &str| format!("{:.1} ms", figure(summary, name));
    let points = [
        "points_created",
        "points_acknowledged",
        "points_rejected",
        "points_dropped",
        "points_lost",
    ];
    [
        (
            "points made, acknowledged, rejected, dropped, lost",
            points.map(number).join(", "),
        ),
        (
            "retries, reconnects",
            ["retries", "reconnects"].map(number).join(", "),
        ),
        (
            "acknowledgement p50, p99, max",
            ["ack_p50_ms", "ack_p99_ms", "ack_max_ms"]
                .map(ms)
                .join(", "),
        ),
        (
            "largest delay of the simulation itself (above some tens of ms the machine is too slow for it)",
            ms("behind_ms"),
        ),
    ]
}

impl Observed {
    fn cells(&self) -> [(&'static str, String); 4] {
        let queries = [0.5, 0.99, 1.0].map(|at| millis(&self.queries, at));
        let queried = format!("{}, {}", self.queries.len(), self.failed_queries);
        [
            ("`find_outlier_nodes` p50, p99, max", queries.join(", ")),
            ("queries answered, failed", queried),
            ("RSS first, last, max", self.resident.ends()),
            ("file first, last, max", self.file.ends()),
        ]
    }

    fn sample(&mut self, echo: &Echo, begin: Instant) -> anyhow::Result<()> {
        let at_s = begin.elapsed().as_secs_f64();
        self.resident.add(at_s, echo.process.memory()?.resident);
        self.file.add(at_s, echo.file_mb());
        // The cluster is unknown until the first points arrive.
        let has_data = echo.metric("echo_store_events_total")? > 0.0;
        if has_data {
            match echo.find_outliers(CLUSTER) {
                Ok(took) => self
                    .queries
                    .saturating_record(u64::try_from(took.as_micros())?),
                Err(_counted) => self.failed_queries += 1,
            }
        }
        Ok(())
    }
}

fn figure(summary: &Value, name: &str) -> f64 {
    let figure = summary.get(name).and_then(Value::as_f64);
    figure.unwrap_or(f64::NAN)
}

fn summary(output: &Path) -> anyhow::Result<Value> {
    let text = read_to_string(output)?;
    ensure!(
        !text.is_empty(),
        "the agents printed no summary: run the command by hand"
    );
    serde_json::from_str(&text).context("the agents' summary")
}
