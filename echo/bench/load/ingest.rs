//! Cost of a point in a receiver, by shape and request size.

use indicatif::ProgressBar;
use tonic::codec::CompressionEncoding;

use crate::generator::Load;
use crate::measure::{Cost, Timing, measure};
use crate::message::Shape;
use crate::programs::Programs;
use crate::receiver::{Kind, Receiver};
use crate::table::{Table, megabytes, millis, whole};

/// Rows of the tables.
#[derive(Debug, clap::Args)]
pub(crate) struct Rows {
    /// Receivers to measure
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',', value_enum, default_values_t = [Kind::Echo, Kind::Rotel, Kind::Prost])]
    receivers: Vec<Kind>,
    /// Points per request to measure
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

/// Returns the tables of both shapes, and one for compressed requests.
pub(crate) async fn tables(
    rows: &Rows,
    programs: &Programs,
    timing: Timing,
    progress: &ProgressBar,
) -> anyhow::Result<String> {
    let bench = IngestBench {
        rows,
        programs,
        timing,
        progress,
    };
    let plain = |shape| -> Vec<_> {
        let points = rows.points.iter();
        points.map(|points| Load::closed(shape, *points)).collect()
    };
    let mut text = String::new();
    for shape in [Shape::Operations, Shape::Blocks] {
        let title = format!("Cost of a point: {}", shape.name());
        text += &bench.table(&title, &plain(shape)).await?;
    }
    let compressed = [CompressionEncoding::Gzip, CompressionEncoding::Zstd].map(|encoding| Load {
        compression: Some(encoding),
        ..Load::closed(Shape::Blocks, 1_000)
    });
    let title = "Cost of a point: blocks of an agent, compressed";
    text += &bench.table(title, &compressed).await?;
    Ok(text)
}

/// Benchmark of ingest.
struct IngestBench<'a> {
    rows: &'a Rows,
    programs: &'a Programs,
    timing: Timing,
    progress: &'a ProgressBar,
}

impl IngestBench<'_> {
    /// Measures each receiver under each load.
    async fn table(&self, title: &str, loads: &[Load]) -> anyhow::Result<String> {
        let description = "Requests are encoded beforehand and sent over gRPC on loopback from another process: four connections \
            with two requests in flight on each, as fast as they are acknowledged. CPU is that of the receiver's process, \
            user and system, until it has finished all work for the points: for Echo this includes checkpoints and the \
            detector. Echo acknowledges when the points are on disk. A new receiver for each row.";
        let mut table = Table::new(title, description, &COLUMNS);
        let mut size = String::new();
        for &kind in &self.rows.receivers {
            if !kind.is_among(self.programs) {
                continue;
            }
            for load in loads {
                let encoding = load.compression.map_or("plain", name);
                self.progress.set_message(format!(
                    "{title}: {}, {} points, {encoding}",
                    kind.name(),
                    load.points
                ));
                let receiver = Receiver::start(kind, self.programs).await?;
                let cost = measure(&receiver, *load, self.timing).await?;
                table.row(&row(kind, load, &cost));
                size = format!(
                    "The points of the largest requests are {:.0} B each before compression.",
                    cost.bytes_per_point
                );
            }
        }
        if self.rows.receivers.contains(&Kind::Rotel) && self.programs.rotel.is_none() {
            size += " Without Rotel: no program was given (`--rotel PATH`).";
        }
        Ok(table.end(&size))
    }
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
