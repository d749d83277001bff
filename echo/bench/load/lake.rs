//! Cost of a lake as it grows: to copy events into it, and to query it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::echo::Echo;
use crate::generator::{Load, Times, unix_ns};
use crate::growth::fill;
use crate::message::{CLUSTER, Shape};
use crate::programs::Programs;
use crate::table::{Table, megabytes, millis, times, whole};

/// Number of queries of a tool at each size.
const QUERIES: u32 = 10;
/// Interval at which the server is asked whether all is copied.
const POLL: Duration = Duration::from_millis(100);
/// Clusters of four nodes of eight ranks.
const CLUSTERS: u32 = 100;
const NODES_A_CLUSTER: u32 = 4;
/// Points per second of all senders. They keep pace with each other.
const RATE: f64 = 90_000.0;
/// Events of the largest size are of this time.
const SPAN: Duration = Duration::from_hours(30 * 24);
/// Larger sizes are measured with the lake only, since they take a quarter of an hour.
const MOST_ROWS_WITHOUT: u64 = 10_000_000;

/// An empty lake.
#[derive(Debug, Args)]
pub(crate) struct LakeArgs {
    /// Catalog of an empty lake, such as `ducklake:postgres:dbname=bench`; without it, the part
    /// lake is skipped
    #[arg(long, value_name = "CATALOG", required_if_eq("only", "lake"))]
    #[arg(requires_all = ["lake_data", "duckdb_extensions"])]
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
    let mut growth = Growth::new(programs, progress, load(rows));
    let few = |rows: &u64| *rows <= MOST_ROWS_WITHOUT;
    let without: Vec<u64> = rows.iter().copied().filter(few).collect();
    growth.measure(&[], &without).await?;
    growth.measure(&flags, rows).await?;
    Ok(growth.ingest.end("") + &growth.queries.end(""))
}

/// Load whose events are of the last month when the largest size is reached.
fn load(rows: &[u64]) -> Load {
    let load = Load {
        nodes: CLUSTERS * NODES_A_CLUSTER,
        clusters: CLUSTERS,
        rate: Some(RATE),
        ..Load::closed(Shape::Blocks, 1_000)
    };
    let points_a_round = u64::from(load.nodes) * u64::from(load.real_points());
    let rounds = rows.last().map_or(1, |most| most / points_a_round + 1);
    let span_ns = u64::try_from(SPAN.as_nanos()).unwrap_or(u64::MAX);
    let times = Times {
        first_ns: unix_ns() - span_ns,
        step_ns: span_ns / (rounds + 1),
    };
    Load {
        times: Some(times),
        ..load
    }
}

/// Measurement of both servers, and its tables.
#[derive(Debug)]
struct Growth<'a> {
    programs: &'a Programs,
    progress: &'a ProgressBar,
    load: Load,
    ingest: Table,
    queries: Table,
}

impl<'a> Growth<'a> {
    fn new(programs: &'a Programs, progress: &'a ProgressBar, load: Load) -> Self {
        let ingest = "An instance without a lake, then one with it, each filled over OTLP with blocks of agents, 1,000 \
            points per request and up to 90,000 per second, from 400 nodes in 100 clusters. The events of the largest size are \
            spread over 30 days. CPU is that of the process from the first to the last of the added points, until the \
            detector has read and the lake has all of them.";
        let queries = "Each tool 10 times on the otherwise idle server: a server without a lake from its database, and a \
            server with `--read-only` that starts at each size. Bytes are those that the process read from files, whether \
            or not the kernel had them in memory.";
        Self {
            programs,
            progress,
            load,
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
                    "source",
                    "rows",
                    "query",
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

    /// Fills an instance up to each number of rows; it uses the lake of these flags if there are any.
    async fn measure(&mut self, lake: &[String], rows: &[u64]) -> anyhow::Result<()> {
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
        let echo = Echo::start(&self.programs.echo()?, &flags)?;
        let mut load = self.load;
        for &target in rows {
            let before = (
                echo.metric("echo_store_events_total")?,
                echo.process.cpu_seconds()?,
            );
            let begin = Instant::now();
            load.first_round = fill(&echo, load, target, self.progress).await?;
            let sent = begin.elapsed();
            echo.settle().await?;
            if !lake.is_empty() {
                self.progress
                    .set_message(format!("Lake: copying up to {target} rows"));
                copied(&echo).await?;
            }
            let copied = begin.elapsed().saturating_sub(sent);
            let stored = echo.metric("echo_store_events_total")?;
            let end_ms = end_ms(load);
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
            self.progress
                .set_message(format!("Lake: queries of {} rows", whole(stored)));
            if lake.is_empty() {
                self.query("database", &echo, stored, end_ms)?;
            } else {
                let reader = Echo::start_reader(&self.programs.echo()?, lake)?;
                self.query("lake", &reader, stored, end_ms)?;
            }
        }
        Ok(())
    }

    fn query(&mut self, source: &str, echo: &Echo, stored: f64, end_ms: u64) -> anyhow::Result<()> {
        for (query, tool, arguments) in queries(end_ms) {
            let timed = timed(echo, tool, &arguments)?;
            let memory = echo.process.memory()?;
            self.queries.row(&[
                source.to_owned(),
                whole(stored),
                query.to_owned(),
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
}

/// Waits until the lake has all events.
async fn copied(echo: &Echo) -> anyhow::Result<()> {
    while echo.metric("echo_lake_behind_events")? > 0.0 {
        sleep(POLL).await;
    }
    Ok(())
}

/// End of the events that were sent, milliseconds since 1970.
fn end_ms(load: Load) -> u64 {
    let end_ns = load
        .times
        .map_or_else(unix_ns, |times| times.of(load.first_round));
    end_ns / 1_000_000
}

/// Queries: what they ask, tool and arguments. Times are milliseconds since 1970.
fn queries(end_ms: u64) -> [(&'static str, &'static str, Value); 6] {
    const DAY_MS: u64 = 24 * 3_600_000;
    let to = end_ms.to_string();
    let day = (end_ms - DAY_MS).to_string();
    let month = (end_ms - 30 * DAY_MS).to_string();
    let of_day = json!({ "cluster": CLUSTER, "from": day, "to": to });
    let of_rank = json!({ "cluster": CLUSTER, "rank": 0, "from": day, "to": to });
    let recent = format!(
        "SELECT node_id, rank, count(*) AS points FROM events WHERE cluster_id = '{CLUSTER}' \
         AND timestamp_ns >= ({end_ms} - {DAY_MS}) * 1000000 GROUP BY ALL"
    );
    let all = "SELECT cluster_id, count(*) FROM events GROUP BY ALL";
    [
        (
            "find_outlier_nodes, a cluster, a day",
            "fleet.cluster.find_outlier_nodes",
            of_day.clone(),
        ),
        ("explain_rank, a day", "fleet.cluster.explain_rank", of_rank),
        (
            "event_history, a cluster, a day",
            "fleet.cluster.event_history",
            of_day,
        ),
        (
            "get_cost, all clusters, 30 days",
            "fleet.cluster.get_cost",
            json!({ "from": month, "to": to }),
        ),
        (
            "run_analysis, a cluster, a day",
            "fleet.cluster.run_analysis",
            json!({ "sql": recent }),
        ),
        (
            "run_analysis, all events",
            "fleet.cluster.run_analysis",
            json!({ "sql": all }),
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
