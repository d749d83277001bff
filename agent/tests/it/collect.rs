//! Replays that collect their batches in memory.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use clap::Parser;
use fleet_agent::config::{Cli, Command, ReplayArgs};
use fleet_agent::replay::summary::Summary;
use fleet_agent::replay::{ReplayError, replay};
use fleet_agent_core::batch::{Batch, Resource, VerdictBatch};
use fleet_agent_core::signal::{Point, Summary as Samples, Value};
use fleet_agent_export::{Ack, Export, ExportError};
use indicatif::ProgressBar;

/// Exporter that stores every batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collected(Arc<Mutex<Vec<Batch>>>);

impl Export for Collected {
    async fn export(&self, batch: &Batch) -> Result<Ack, ExportError> {
        self.0.lock().unwrap().push(batch.clone());
        Ok(Ack::default())
    }

    async fn export_verdicts(&self, _: &VerdictBatch) -> Result<Ack, ExportError> {
        Ok(Ack::default())
    }
}

/// One point and its process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sent {
    pub(crate) resource: Resource,
    pub(crate) point: Point,
}

impl Sent {
    /// Rank of the process, which all recordings of these tests have.
    pub(crate) fn rank(&self) -> u32 {
        self.resource.rank.unwrap()
    }

    pub(crate) fn samples(&self) -> Samples {
        match &self.point.value {
            Value::Summary { summary, .. } => *summary,
            _ => panic!("only a summary has samples"),
        }
    }

    pub(crate) fn gauge(&self) -> f64 {
        match self.point.value {
            Value::Gauge(value) | Value::Increase(value) => value,
            _ => panic!("not one number"),
        }
    }
}

/// Points that a replay sent, in a fixed order, and its result.
pub(crate) struct Replayed {
    pub(crate) summary: Summary,
    pub(crate) sent: Vec<Sent>,
    pub(crate) result: Result<(), ReplayError>,
}

pub(crate) fn recording(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // Those at the speed at which they were taken.
    let folder = if name.contains('/') { "" } else { "short" };
    root.join("testdata/recordings")
        .join(folder)
        .join(format!("{name}.jsonl.gz"))
}

pub(crate) fn args(file: &Path, extra: &[&str]) -> ReplayArgs {
    let file = file.to_str().unwrap();
    let fixed = [
        "fleet-agent",
        "replay",
        file,
        "--endpoint",
        "none",
        "--cluster",
        "lab",
    ];
    let start = ["--start-at", "2026-01-31T12:00:00Z"];
    let all = fixed.iter().chain(&start).chain(extra);
    match Cli::try_parse_from(all).unwrap().command {
        Command::Replay(args) => *args,
        other => panic!("{other:?}"),
    }
}

/// Replays a file as fast as it can be read.
pub(crate) fn run(file: &Path, extra: &[&str]) -> Replayed {
    let mut extra = extra.to_vec();
    if !extra.contains(&"--speed") {
        extra.extend(["--speed", "max"]);
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(collect(&args(file, &extra)))
}

async fn collect(args: &ReplayArgs) -> Replayed {
    let collected = Collected::default();
    let exporter = |_: &str| collected.clone();
    let (summary, result) = replay(args, exporter, &ProgressBar::hidden()).await;
    let mut sent = Vec::new();
    for batch in collected.0.lock().unwrap().iter() {
        for resource in &batch.resources {
            sent.extend(resource.points.iter().map(|point| Sent {
                resource: resource.resource.clone(),
                point: point.clone(),
            }));
        }
    }
    // Hosts deliver in parallel; within one host the order is preserved.
    sent.sort_by_key(|sent| sent.resource.rank);
    Replayed {
        summary,
        sent,
        result,
    }
}

#[expect(clippy::cast_precision_loss, reason = "tests count in thousands")]
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
