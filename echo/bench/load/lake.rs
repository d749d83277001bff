//! Cost of a lake as it grows: to copy events into it, and to query it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::echo::Echo;
use crate::generator::Load;
use crate::growth::fill;
use crate::message::{CLUSTER, Shape};
use crate::programs::Programs;
use crate::table::{Table, megabytes, millis, times, whole};

/// Number of queries of a tool at each size.
const QUERIES: u32 = 10;
/// Interval at which the server is asked whether all is copied.
const POLL: Duration = Duration::from_millis(100);

/// An empty lake.
#[derive(Debug, Args)]
pub(crate) struct LakeArgs {
    /// Catalog of an empty lake, such as `ducklake:postgres:dbname=bench`; without it, the part
    /// lake is skipped
    #[arg(long, value_name = "CATALOG", requires_all = ["lake_data", "duckdb_extensions"])]
    lake: Option<String>,
    /// Folder of its Parquet files
    #[arg(long, value_name = "DIR")]
    lake_data: Option<PathBuf>,
    /// Extensions of DuckDB: `echo/get-duckdb --extensions` prints the folder
    #[arg(long, value_name = "DIR")]
    duckdb_extensions: Option<PathBuf>,
}

impl LakeArgs {
    /// Flags of a server that uses the lake, if there is one.
    fn flags(&self) -> Option<Vec<String>> {
        let text = |path: &Option<PathBuf>| Some(path.as_ref()?.display().to_string());
        Some(vec![
            "--lake".to_owned(),
            self.lake.clone()?,
            "--lake-data".to_owned(),
            text(&self.lake_data)?,
            "--duckdb-extensions".to_owned(),
            text(&self.duckdb_extensions)?,
        ])
    }
}

/// Costs of a server without and with the lake, and of a server with `--read-only`, at each number of
/// rows, ascending.
pub(crate) async fn tables(
    args: &LakeArgs,
    programs: &Programs,
    rows: &[u64],
    progress: &ProgressBar,
) -> anyhow::Result<String> {
    let Some(flags) = args.flags() else {
        return Ok(String::new());
    };
    let mut tables = Tables::new();
    tables.grow(programs, &[], rows, progress).await?;
    tables.grow(programs, &flags, rows, progress).await?;
    Ok(tables.end())
}

/// Tables of both servers.
#[derive(Debug)]
struct Tables {
    ingest: Table,
    queries: Table,
}

impl Tables {
    fn new() -> Self {
        let ingest = "An instance without a lake, then one with it, each filled over OTLP with blocks of an agent, 1,000 \
            points per request. CPU is that of the process from the first to the last of the added points, until the \
            detector has read and the lake has all of them.";
        let queries = "Each tool 10 times on the otherwise idle server: a server without a lake from its database, and a \
            server with `--read-only` that starts at each size. Bytes are those that the process read from files, whether \
            or not the kernel had them in memory.";
        Self {
            ingest: Table::new(
                "Growth with a lake",
                ingest,
                &[
                    "server",
                    "rows",
                    "CPU per point",
                    "points/s",
                    "copied after the last point",
                    "file",
                    "RSS",
                    "peak RSS",
                ],
            ),
            queries: Table::new(
                "Queries of a lake",
                queries,
                &[
                    "server",
                    "rows",
                    "tool",
                    "first",
                    "then p50",
                    "max",
                    "read by the first",
                    "by a later one",
                    "RSS",
                    "peak RSS",
                    "failed",
                ],
            ),
        }
    }

    /// Fills an instance with further flags, which use the lake if there are any.
    async fn grow(
        &mut self,
        programs: &Programs,
        lake: &[String],
        rows: &[u64],
        progress: &ProgressBar,
    ) -> anyhow::Result<()> {
        let name = if lake.is_empty() {
            "without a lake"
        } else {
            "with a lake"
        };
        let without_retention = ["--retention-age", "off", "--retention-size", "off"];
        let flags: Vec<&str> = without_retention
            .into_iter()
            .chain(lake.iter().map(String::as_str))
            .collect();
        let echo = Echo::start(&programs.echo()?, &flags)?;
        let mut load = Load::closed(Shape::Blocks, 1_000);
        for &target in rows {
            let before = (
                echo.metric("echo_store_events_total")?,
                echo.process.cpu_seconds()?,
            );
            let begin = Instant::now();
            load.first_round = fill(&echo, load, target, progress).await?;
            let sent = begin.elapsed();
            echo.settle().await?;
            if !lake.is_empty() {
                progress.set_message(format!("Lake: {} rows are copied", whole(before.0)));
                copied(&echo).await?;
            }
            let copied = begin.elapsed().saturating_sub(sent);
            let stored = echo.metric("echo_store_events_total")?;
            let (points, cpu) = (stored - before.0, echo.process.cpu_seconds()? - before.1);
            let memory = echo.process.memory()?;
            self.ingest.row(&[
                name.to_owned(),
                whole(stored),
                format!("{} ns", whole(cpu * 1e9 / points)),
                whole(points / sent.as_secs_f64()),
                format!("{:.1} s", copied.as_secs_f64()),
                megabytes(echo.file_mb()),
                megabytes(memory.resident),
                megabytes(memory.peak),
            ]);
            progress.set_message(format!("Lake: queries of {} rows", whole(stored)));
            if lake.is_empty() {
                self.query("database", &echo, stored)?;
            } else {
                self.query(
                    "lake",
                    &Echo::start_reader(&programs.echo()?, lake)?,
                    stored,
                )?;
            }
        }
        Ok(())
    }

    fn query(&mut self, name: &str, echo: &Echo, stored: f64) -> anyhow::Result<()> {
        for (tool, arguments) in tools() {
            let timed = timed(echo, tool, &arguments)?;
            let memory = echo.process.memory()?;
            self.queries.row(&[
                name.to_owned(),
                whole(stored),
                tool.rsplit('.').next().unwrap_or(tool).to_owned(),
                format!("{} ms", whole(timed.first.as_secs_f64() * 1e3)),
                millis(&timed.later, 0.5),
                millis(&timed.later, 1.0),
                megabytes(timed.read_mb.0),
                megabytes(timed.read_mb.1),
                megabytes(memory.resident),
                megabytes(memory.peak),
                timed.failure.unwrap_or_else(|| "none".to_owned()),
            ]);
        }
        Ok(())
    }

    fn end(self) -> String {
        self.ingest.end("") + &self.queries.end("")
    }
}

/// Waits until the lake has all events.
async fn copied(echo: &Echo) -> anyhow::Result<()> {
    while echo.metric("echo_lake_behind_events")? > 0.0 {
        sleep(POLL).await;
    }
    Ok(())
}

/// Queries over all of the cluster, and one of SQL over its last minutes.
fn tools() -> [(&'static str, Value); 6] {
    let recent = format!(
        "SELECT node_id, rank, count(*) AS points, median(value_mean) AS middle FROM events WHERE cluster_id = '{CLUSTER}' \
         AND event_time >= (SELECT max(event_time) FROM events) - INTERVAL 1 MINUTE GROUP BY ALL"
    );
    let cluster = json!({ "cluster": CLUSTER });
    [
        ("fleet.cluster.find_outlier_nodes", cluster.clone()),
        ("fleet.cluster.get_cost", cluster.clone()),
        (
            "fleet.cluster.explain_rank",
            json!({ "cluster": CLUSTER, "rank": 0 }),
        ),
        ("fleet.cluster.event_history", cluster),
        ("fleet.cluster.run_analysis", json!({ "sql": recent })),
        (
            "fleet.cluster.run_analysis",
            json!({ "sql": "SELECT count(*), count(DISTINCT rank) FROM events" }),
        ),
    ]
}

/// Times of a tool, the bytes that its first and its later queries read on average, and the first error.
#[derive(Debug)]
struct Timed {
    first: Duration,
    later: Histogram<u64>,
    read_mb: (f64, f64),
    failure: Option<String>,
}

fn timed(echo: &Echo, tool: &str, arguments: &Value) -> anyhow::Result<Timed> {
    let mut failure = None;
    let mut call = || {
        let begin = Instant::now();
        if let Err(error) = echo.call(tool, arguments) {
            failure.get_or_insert_with(|| error.to_string());
        }
        begin.elapsed()
    };
    let read_before = echo.process.read_mb()?;
    let first = call();
    let read_by_first = echo.process.read_mb()?;
    let mut later = times()?;
    for _ in 1..QUERIES {
        later.saturating_record(u64::try_from(call().as_micros())?);
    }
    let read_later = (echo.process.read_mb()? - read_by_first) / f64::from(QUERIES - 1);
    Ok(Timed {
        first,
        later,
        read_mb: (read_by_first - read_before, read_later),
        failure,
    })
}
