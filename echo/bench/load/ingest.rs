//! What a point costs a receiver, by its shape and the size of the requests.

use indicatif::ProgressBar;
use tonic::codec::CompressionEncoding;

use crate::generator::Load;
use crate::measure::{Cost, Timing, measure};
use crate::message::Shape;
use crate::programs::Programs;
use crate::receiver::{Kind, Receiver};
use crate::table::{Table, megabytes, millis, whole};

/// Which rows the tables have.
#[derive(Debug, clap::Args)]
pub(crate) struct Rows {
    /// Receivers that ingest is measured with
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',', value_enum, default_values_t = [Kind::Echo, Kind::Rotel, Kind::Prost])]
    receivers: Vec<Kind>,
    /// Points of the requests that ingest is measured with
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_values_t = [10, 40, 100, 1_000])]
    points: Vec<u32>,
}

const COLUMNS: [&str; 10] = [
    "receiver",
    "points per request",
    "CPU per point",
    "points/s per core",
    "points/s",
    "ack p50",
    "ack p99",
    "RSS",
    "peak RSS",
    "problems",
];

/// Tables for both shapes, and one for compressed requests.
pub(crate) async fn tables(
    rows: &Rows,
    (programs, timing): (&Programs, Timing),
    progress: &ProgressBar,
) -> anyhow::Result<String> {
    let plain = |shape| -> Vec<_> {
        let points = rows.points.iter();
        points.map(|points| Load::closed(shape, *points)).collect()
    };
    let mut text = String::new();
    for shape in [Shape::Operations, Shape::Blocks] {
        let title = format!("Cost of a point: {}", shape.name());
        text += &table(&title, (rows, &plain(shape)), (programs, timing, progress)).await?;
    }
    let compressed = [CompressionEncoding::Gzip, CompressionEncoding::Zstd].map(|encoding| Load {
        compression: Some(encoding),
        ..Load::closed(Shape::Blocks, 1_000)
    });
    text += &table(
        "Cost of a point: blocks of an agent, compressed",
        (rows, &compressed),
        (programs, timing, progress),
    )
    .await?;
    Ok(text)
}

async fn table(
    title: &str,
    (rows, loads): (&Rows, &[Load]),
    (programs, timing, progress): (&Programs, Timing, &ProgressBar),
) -> anyhow::Result<String> {
    let what = "Requests encoded beforehand, over gRPC on loopback from another process, four connections with two requests \
        in flight on each, as fast as they are acknowledged. CPU is that of the receiver's process alone, user and system, \
        until it has done all that came with the points: for Echo also the checkpoints in that time and the detector's reading. \
        Echo acknowledges when the points are on disk. A new receiver for each row.";
    let mut table = Table::new(title, what, &COLUMNS);
    let mut size = String::new();
    for &kind in &rows.receivers {
        if !kind.is_among(programs) {
            continue;
        }
        for load in loads {
            let encoding = load.compression.map_or("plain", name);
            progress.set_message(format!(
                "{title}: {}, {} points, {encoding}",
                kind.name(),
                load.points
            ));
            let receiver = Receiver::start(kind, programs).await?;
            let cost = measure(&receiver, *load, timing).await?;
            table.row(&row(kind, load, &cost));
            size = format!(
                "The points of the largest requests are {:.0} B each before compression.",
                cost.bytes_per_point
            );
        }
    }
    if rows.receivers.contains(&Kind::Rotel) && programs.rotel.is_none() {
        size += " Rotel was left out: no program was given (`--rotel PATH`).";
    }
    Ok(table.end(&size))
}

fn row(kind: Kind, load: &Load, cost: &Cost) -> Vec<String> {
    let encoding = load.compression.map_or("", name);
    vec![
        kind.name().to_owned(),
        format!("{} {encoding}", load.real_points())
            .trim_end()
            .to_owned(),
        format!("{} ns", whole(cost.cpu_ns_per_point)),
        whole((1e9 / cost.cpu_ns_per_point).floor()),
        whole(cost.points_per_s),
        millis(&cost.tally.acks, 0.5),
        millis(&cost.tally.acks, 0.99),
        megabytes(cost.memory.resident),
        megabytes(cost.memory.peak),
        cost.tally.problems(),
    ]
}

fn name(encoding: CompressionEncoding) -> &'static str {
    match encoding {
        CompressionEncoding::Zstd => "zstd",
        _ => "gzip",
    }
}
