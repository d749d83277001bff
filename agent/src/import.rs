//! Import of files that other tools wrote: reads them, and delivers their points. Opens files and
//! spawns tasks.

mod files;
pub mod nsys;

use std::fmt;
use std::time::Duration;

use fleet_agent_core::batch::Resource;
use fleet_agent_core::printable::printable;
use fleet_agent_export::Export;
use fleet_agent_export::delivery::report::Report as Delivered;
use fleet_agent_export::delivery::{Delivery, Outbox, WhenFull};
use fleet_import::blocks::RankPoints;
use fleet_import::progress::REPORT_TIMES;
use fleet_import::report::Report;
use fleet_import::trace_set::{ImportError, Imported};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::task::{JoinError, JoinSet};

use crate::config::{ImportArgs, NO_ENDPOINT, StartAt};

/// Maximum number of points queued per rank.
const QUEUE_POINTS: usize = 20_000;
/// Time after which an unreachable endpoint is given up.
const GIVE_UP_AFTER: Duration = Duration::from_mins(1);

/// Maximum length of names in the files, characters.
const MAX_NAME: usize = 60;

/// Error that ends an import.
#[derive(Debug, thiserror::Error)]
pub enum ImportFailure {
    /// A file or folder cannot be read.
    #[error("{path}: cannot be read ({source})")]
    Unreadable {
        /// File or folder.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A file is not of a known format, or is damaged.
    #[error(transparent)]
    Content(#[from] ImportError),
    /// The files do not allow a verdict.
    #[error("no verdict: {0}")]
    Refused(String),
    /// Points did not arrive.
    #[error(
        "{endpoint}: {points} points were not delivered ({reason}); check that Echo listens there"
    )]
    Undelivered {
        /// The endpoint.
        endpoint: String,
        /// Points that were dropped.
        points: u64,
        /// Cause.
        reason: String,
    },
    /// The receiver rejected every point.
    #[error("{endpoint}: all {points} points were rejected ({reason})")]
    Rejected {
        /// The endpoint.
        endpoint: String,
        /// Number of points.
        points: u64,
        /// Reason of the receiver.
        reason: String,
    },
    /// A task panicked.
    #[error("internal error: a task of the import failed ({0})")]
    TaskFailed(#[from] JoinError),
}

/// Findings, and what was delivered.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    report: Option<Report>,
    /// Whether an endpoint was given, so that points are sent.
    is_sent: bool,
    delivered: Delivered,
}

impl Summary {
    /// Returns the summary as JSON, with the error that ended the import.
    pub fn to_json(&self, error: Option<&str>) -> Value {
        json!({
            "report": self.report,
            "points_sent": self.delivered.points_sent,
            "points_rejected": self.delivered.points_rejected,
            "points_dropped": self.delivered.points_dropped,
            "error": error,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(report) = &self.report {
            write!(f, "{report}")?;
        }
        if !self.is_sent {
            return Ok(());
        }
        let Delivered {
            points_sent,
            points_rejected,
            points_dropped,
            ..
        } = &self.delivered;
        write!(
            f,
            "  sent     {points_sent} points, {points_rejected} rejected, {points_dropped} dropped"
        )
    }
}

/// Reads the files and delivers their points; `exporter` creates the exporter of each node from its
/// name.
pub async fn import<E, F>(
    args: &ImportArgs,
    exporter: F,
    progress: &ProgressBar,
) -> (Summary, Result<(), ImportFailure>)
where
    E: Export,
    F: FnMut(&str) -> E,
{
    let mut summary = Summary {
        is_sent: args.endpoint != NO_ENDPOINT,
        ..Summary::default()
    };
    let mut imported = match files::read(&args.paths, progress) {
        Ok(imported) => imported,
        Err(error) => return (summary, Err(error)),
    };
    summary.report = Some(imported.report.clone());
    if let Some(refusal) = imported.report.refusal.clone() {
        return (summary, Err(ImportFailure::Refused(refusal)));
    }
    let delivered = &mut summary.delivered;
    let result = if imported.progress.is_empty() {
        let longest_ns = imported.points.iter().map(RankPoints::span_ns).max();
        let sent = Schedule {
            start_ns: unix_ns_before(longest_ns.unwrap_or(0)),
            pauses: &[],
        };
        deliver(args, &imported, exporter, sent, delivered).await
    } else {
        report_hang(args, &mut imported, exporter, delivered).await
    };
    (summary, result)
}

/// Reports the progress of the ranks of a hang, at the times at which a live agent would.
async fn report_hang<E, F>(
    args: &ImportArgs,
    imported: &mut Imported,
    exporter: F,
    total: &mut Delivered,
) -> Result<(), ImportFailure>
where
    E: Export,
    F: FnMut(&str) -> E,
{
    imported.points = std::mem::take(&mut imported.progress);
    let mut pauses = Vec::new();
    let mut begin = Duration::ZERO;
    if args.endpoint == NO_ENDPOINT {
        // The later reports are not needed.
    } else if let Some(seconds) = args.hang_age {
        // The report that is as old.
        let [.., last] = REPORT_TIMES;
        let age = Duration::from_secs(seconds.into());
        let at = REPORT_TIMES.iter().rposition(|time| *time + age <= last);
        let at = at.unwrap_or(0);
        begin = age + REPORT_TIMES.get(at).copied().unwrap_or_default();
        for own in &mut imported.points {
            own.blocks = own.blocks.drain(..).skip(at).take(1).collect();
        }
    } else {
        let times = REPORT_TIMES.iter();
        pauses = times
            .zip(REPORT_TIMES.iter().skip(1))
            .map(|(one, next)| next.saturating_sub(*one))
            .collect();
    }
    let sent = Schedule {
        start_ns: unix_ns_before(u64::try_from(begin.as_nanos()).unwrap_or(u64::MAX)),
        pauses: &pauses,
    };
    deliver(args, imported, exporter, sent, total).await
}

/// When points are sent.
struct Schedule<'p> {
    /// Time at which the blocks begin, Unix nanoseconds.
    start_ns: u64,
    /// Pauses after the first blocks of all ranks.
    pauses: &'p [Duration],
}

/// Returns the time `age_ns` ago, Unix nanoseconds.
fn unix_ns_before(age_ns: u64) -> u64 {
    u64::try_from(StartAt::Now.unix_ns() - i128::from(age_ns)).unwrap_or(0)
}

/// Sends the points of all ranks, block by block, so that the blocks arrive in their order.
async fn deliver<E, F>(
    args: &ImportArgs,
    imported: &Imported,
    mut exporter: F,
    schedule: Schedule<'_>,
    total: &mut Delivered,
) -> Result<(), ImportFailure>
where
    E: Export,
    F: FnMut(&str) -> E,
{
    let mut deliveries = JoinSet::new();
    let mut queues: Vec<(Outbox, std::vec::IntoIter<_>)> = Vec::new();
    let mut pauses = schedule.pauses.iter();
    for own in &imported.points {
        let resource = resource(args, imported, own.rank);
        let (outbox, delivery) = Delivery::new(
            exporter(&resource.node),
            QUEUE_POINTS,
            WhenFull::Wait,
            GIVE_UP_AFTER,
        );
        deliveries.spawn(delivery.run());
        queues.push((
            outbox,
            own.batches(&resource, schedule.start_ns).into_iter(),
        ));
    }
    while !queues.is_empty() {
        let mut open = Vec::new();
        for (mut outbox, mut batches) in queues {
            if let Some(batch) = batches.next() {
                let _is_open = outbox.send(batch).await;
                open.push((outbox, batches));
            }
        }
        queues = open;
        if let Some(pause) = pauses.next() {
            tokio::time::sleep(*pause).await;
        }
    }
    let mut reason = None;
    while let Some(joined) = deliveries.join_next().await {
        let (report, gave_up) = joined?;
        reason = reason.or_else(|| report.refusal.clone());
        reason = reason.or_else(|| gave_up.map(|gave_up| gave_up.to_string()));
        total.add(&report);
    }
    accepted(&args.endpoint, total, reason)
}

/// Returns an error if points did not arrive, or none was accepted. `dropped` is why points were
/// dropped.
fn accepted(
    endpoint: &str,
    total: &Delivered,
    dropped: Option<String>,
) -> Result<(), ImportFailure> {
    let endpoint = endpoint.to_owned();
    if total.points_dropped > 0 {
        return Err(ImportFailure::Undelivered {
            endpoint,
            points: total.points_dropped,
            reason: dropped.unwrap_or_else(|| "the queue was full".to_owned()),
        });
    }
    if total.points_rejected > 0 && total.points_rejected == total.points_sent {
        let reasons: Vec<&str> = total.reasons.keys().map(String::as_str).collect();
        return Err(ImportFailure::Rejected {
            endpoint,
            points: total.points_rejected,
            reason: reasons.join("; "),
        });
    }
    Ok(())
}

fn resource(args: &ImportArgs, imported: &Imported, rank: u32) -> Resource {
    let trace = imported.traces.get(&rank);
    // Echo accepts no names with control characters.
    let name = |text: &str| printable(text, MAX_NAME);
    let model = trace.and_then(|trace| trace.gpu_model.as_deref().map(name));
    Resource {
        cluster: args.cluster.clone(),
        node: trace
            .and_then(|trace| trace.node.as_deref().map(name))
            .unwrap_or_else(|| format!("node-{rank}")),
        job: args.job.clone(),
        gpu_model: args.gpu_model.clone().or(model),
        gpu_uuid: None,
        pod: None,
        namespace: None,
        rank: Some(rank),
        world_size: Some(imported.report.world_size),
        pid: rank,
    }
}

/// Progress bar over the bytes of all files, for a terminal.
pub fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {eta}")
    {
        bar.set_style(style);
    }
    bar.set_message("reading");
    bar
}
