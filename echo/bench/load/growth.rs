//! Cost as the database grows, and as senders spread over more connections.

use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use tokio::time::sleep;

use crate::echo::Echo;
use crate::generator::{Generator, Load};
use crate::measure::{Timing, measure};
use crate::message::{CLUSTER, Shape};
use crate::programs::Programs;
use crate::receiver::{Kind, Receiver};
use crate::table::{Table, megabytes, millis, times, whole};
use crate::wire::Target;

/// Number of queries at each size.
const QUERIES: u32 = 50;

/// Numbers of connections, shared by `NODES` senders.
const CONNECTIONS: [u32; 4] = [4, 64, 512, 1_280];
const NODES: u32 = 1_280;

/// Points per second of all senders: each sends a request of 40 points per second.
const RATE: f64 = 51_200.0;

/// Costs at each number of rows, ascending.
pub(crate) async fn by_rows(
    programs: &Programs,
    rows: &[u64],
    timing: Timing,
    progress: &ProgressBar,
) -> anyhow::Result<String> {
    let columns = [
        "rows stored before",
        "CPU per point",
        "points/s",
        "ack p50",
        "ack p99",
        "find_outlier_nodes first",
        "then p50",
        "p99",
        "file",
        "RSS",
        "peak RSS",
        "problems",
    ];
    let description = "One instance, filled over OTLP with blocks of an agent, 1,000 points per request. At each size the load \
        is the same as above; then the otherwise idle instance runs the query 50 times. The first query counts the \
        reporting ranks of the hour, and Echo caches that count.";
    let mut table = Table::new("Growth", description, &columns);
    let echo = Echo::start(
        &programs.echo()?,
        &["--retention-age", "off", "--retention-size", "off"],
    )?;
    let receiver = Receiver::Echo(echo);
    let Receiver::Echo(echo) = &receiver else {
        return Ok(String::new());
    };
    let mut load = Load::closed(Shape::Blocks, 1_000);
    for &target in rows {
        load.first_round = fill(echo, load, target, progress).await?;
        echo.settle().await?;
        let before = echo.metric("echo_store_events_total")?;
        progress.set_message(format!("Growth: {} rows", whole(before)));
        let cost = measure(&receiver, load, timing).await?;
        load.first_round = cost.next_round;
        let (first, later) = time_queries(echo)?;
        let memory = echo.process.memory()?;
        table.row(&[
            whole(before),
            format!("{} ns", whole(cost.cpu_ns_per_point)),
            whole(cost.points_per_s),
            millis(&cost.tally.acks, 0.5),
            millis(&cost.tally.acks, 0.99),
            format!("{} ms", whole(first.as_secs_f64() * 1e3)),
            millis(&later, 0.5),
            millis(&later, 0.99),
            megabytes(echo.file_mb()),
            megabytes(memory.resident),
            megabytes(memory.peak),
            cost.tally.problems(),
        ]);
    }
    Ok(table.end(""))
}

/// Sends until `target` rows are stored; returns the next round.
pub(crate) async fn fill(
    echo: &Echo,
    load: Load,
    target: u64,
    progress: &ProgressBar,
) -> anyhow::Result<u64> {
    let generator = Generator::start(load, &Target::plain(&echo.otlp)).await?;
    #[expect(clippy::cast_precision_loss, reason = "a number of rows to fill up to")]
    let target = target as f64;
    loop {
        let stored = echo.metric("echo_store_events_total")?;
        if stored >= target {
            return Ok(generator.stop().await?.1);
        }
        progress.set_message(format!(
            "Growth: {} of {} rows",
            whole(stored),
            whole(target)
        ));
        sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the latency of the first query and of the later ones.
fn time_queries(echo: &Echo) -> anyhow::Result<(Duration, Histogram<u64>)> {
    let first = echo.find_outliers(CLUSTER)?;
    let mut later = times()?;
    for _ in 1..QUERIES {
        let took = echo.find_outliers(CLUSTER)?;
        later.saturating_record(u64::try_from(took.as_micros())?);
    }
    Ok((first, later))
}

/// Costs at each number of connections, at the same rate of points.
pub(crate) async fn by_connections(
    programs: &Programs,
    timing: Timing,
    progress: &ProgressBar,
) -> anyhow::Result<String> {
    let columns = [
        "receiver",
        "connections",
        "CPU per point",
        "CPU, share of a core",
        "points/s",
        "ack p50",
        "ack p99",
        "RSS",
        "peak RSS",
        "problems",
    ];
    let description = "1,280 nodes of 8 ranks each send 40 points per second, spread over the second, and share the connections. \
        Acknowledgements are timed from the moment a request was due. A new receiver for each row.";
    let mut table = Table::new("Connections", description, &columns);
    let of_echo = CONNECTIONS.map(|connections| (Kind::Echo, connections));
    let of_others = [Kind::Rotel, Kind::Prost].map(|kind| (kind, NODES));
    let rows = of_echo.into_iter().chain(of_others);
    for (kind, connections) in rows.filter(|(kind, _)| kind.is_among(programs)) {
        progress.set_message(format!("Connections: {connections}"));
        let receiver = Receiver::start(kind, programs).await?;
        let load = Load {
            nodes: NODES,
            connections,
            rate: Some(RATE),
            ..Load::closed(Shape::Blocks, 40)
        };
        let cost = measure(&receiver, load, timing).await?;
        table.row(&[
            kind.name().to_owned(),
            whole(connections.into()),
            format!("{} ns", whole(cost.cpu_ns_per_point)),
            format!("{:.1} %", cost.cores * 100.0),
            whole(cost.points_per_s),
            millis(&cost.tally.acks, 0.5),
            millis(&cost.tally.acks, 0.99),
            megabytes(cost.memory.resident),
            megabytes(cost.memory.peak),
            cost.tally.problems(),
        ]);
    }
    Ok(table.end(""))
}
