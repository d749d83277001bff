//! Replay of recordings: reads files, runs the events through simulated hosts and delivers their
//! batches. Spawns tasks and opens files.

mod fleet;
mod speed;
pub mod summary;

use std::fs::File;

use fleet_agent_core::event::Event;
use fleet_agent_core::host::WallClock;
use fleet_agent_core::pipeline::Ending;
use fleet_agent_core::progress::REPORT_INTERVAL_NS;
use fleet_agent_export::Export;
use fleet_agent_export::delivery::Unreachable;
use fleet_agent_export::delivery::report::Report;
use fleet_agent_sources::recording::Recording;
use fleet_agent_sources::source::{EventSource, SourceError};
use indicatif::{ProgressBar, ProgressStyle};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use crate::config::ReplayArgs;
use crate::replay::fleet::{DeliveryFailure, Fleet};
use crate::replay::speed::Pacer;
use crate::replay::summary::{EventCounts, Summary};

const CHUNK: usize = 256;
const CHUNKS_AHEAD: usize = 16;
/// Pause between the end of one recording and the start of the next, nanoseconds of event time.
const PAUSE_BETWEEN_NS: u64 = 1_000_000_000;

/// Maximum number of ticks in a pause of a recording: an hour.
const MAX_TICKS: u64 = 900;

/// Error of a replay.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// A file is damaged or not a recording.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// No process of the file has the rank of --only-rank.
    #[error("no process of {path} has rank {rank}; omit --only-rank or choose one of its ranks")]
    NoSuchRank {
        /// The file.
        path: String,
        /// The rank.
        rank: u32,
    },
    /// Some hosts did not reach the endpoint.
    #[error(
        "{endpoint}: {source}; {points} points were not delivered (hosts that gave up: {hosts}); \
         check that Echo listens there, then replay again"
    )]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// Names of the hosts.
        hosts: String,
        /// Points dropped, over all hosts.
        points: u64,
        /// Last attempt of the first of the hosts.
        source: Unreachable,
    },
    /// Batches were dropped although the endpoint was reachable.
    #[error(
        "{endpoint}: {points} points were not delivered ({reason}); the summary counts the points \
         that were"
    )]
    Undelivered {
        /// The endpoint.
        endpoint: String,
        /// Points dropped, over all hosts.
        points: u64,
        /// Reason of the first refusal.
        reason: String,
    },
    /// A task of the replay panicked.
    #[error("internal error: a task of the replay failed ({0}); its points were not delivered")]
    TaskFailed(#[source] JoinError),
}

/// Replays all files. On an error the summary still counts what was sent before.
///
/// `exporter` creates the exporter of each host from the host's name.
pub async fn replay<E, F>(
    args: &ReplayArgs,
    exporter: F,
    progress: &ProgressBar,
) -> (Summary, Result<(), ReplayError>)
where
    E: Export,
    F: FnMut(&str) -> E,
{
    let mut summary = Summary::default();
    let recordings = match open_all(args, progress) {
        Ok(recordings) => recordings,
        Err(error) => return (summary, Err(error)),
    };
    let mut fleet = Fleet::new(args, exporter);
    let mut result = Ok(());
    let (mut pacer, mut start_ns) = (Pacer::new(args.speed), 0);
    for recording in recordings {
        let file = play(recording, &mut fleet, &mut pacer, start_ns).await;
        summary.events.add(&file.events);
        start_ns = file.end_ns.saturating_add(PAUSE_BETWEEN_NS);
        result = file.result;
        if result.is_err() || fleet.has_given_up() {
            break;
        }
    }
    let finished = fleet.finish(&mut summary).await;
    if let Some(error) = undelivered(args, finished, &summary.delivery) {
        // A damaged file keeps its error: the summary counts what was refused besides.
        if result.is_ok() || !matches!(error, ReplayError::Undelivered { .. }) {
            result = Err(error);
        }
    }
    (summary, result)
}

/// Error of points that did not arrive, if there are any.
fn undelivered(
    args: &ReplayArgs,
    finished: Result<(), DeliveryFailure>,
    report: &Report,
) -> Option<ReplayError> {
    let (endpoint, points) = (args.endpoint.clone(), report.points_dropped);
    match finished {
        Err(DeliveryFailure::TaskFailed(error)) => Some(ReplayError::TaskFailed(error)),
        Err(DeliveryFailure::Unreachable { hosts, first }) => Some(ReplayError::Unreachable {
            endpoint,
            hosts: hosts.join(", "),
            points,
            source: first,
        }),
        Ok(()) => (points > 0).then(|| ReplayError::Undelivered {
            endpoint,
            points,
            reason: match &report.refusal {
                Some(reason) => format!("refused: {reason}"),
                None => "the queue was full".to_owned(),
            },
        }),
    }
}

/// Progress bar over the bytes of all files, for a terminal.
pub fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {eta}")
    {
        bar.set_style(style);
    }
    bar.set_message("replaying");
    bar
}

fn open_all(args: &ReplayArgs, progress: &ProgressBar) -> Result<Vec<Recording>, ReplayError> {
    let mut recordings = Vec::new();
    for file in &args.files {
        let path = file.display().to_string();
        let opened = File::open(file).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (len, file) = opened.map_err(|source| SourceError::Open {
            path: path.clone(),
            source,
        })?;
        progress.inc_length(len);
        let mut recording = Recording::new(&path, progress.wrap_read(file))?;
        if let Some(rank) = args.only_rank {
            let processes = recording.processes();
            if processes.iter().all(|process| process.rank != rank) {
                return Err(ReplayError::NoSuchRank { path, rank });
            }
            recording = recording.with_arguments_of(rank);
        }
        recordings.push(recording);
    }
    Ok(recordings)
}

struct PlayedFile {
    events: EventCounts,
    end_ns: u64,
    result: Result<(), ReplayError>,
}

async fn play<E, F>(
    recording: Recording,
    fleet: &mut Fleet<'_, E, F>,
    pacer: &mut Pacer,
    start_ns: u64,
) -> PlayedFile
where
    E: Export,
    F: FnMut(&str) -> E,
{
    let mut reader = JoinSet::new();
    let (sender, mut chunks) = mpsc::channel(CHUNKS_AHEAD);
    let processes = recording.processes().to_vec();
    let unranked = recording.unranked().to_vec();
    let gpu_model = recording.gpu_model().map(str::to_owned);
    reader.spawn_blocking(move || read(recording, &sender));
    let (mut origin_ns, mut last_ns) = (None, u64::MAX);
    let mut played = PlayedFile {
        events: EventCounts::default(),
        end_ns: start_ns,
        result: Ok(()),
    };
    while let Some(chunk) = chunks.recv().await {
        for event in chunk {
            let origin_ns = *origin_ns.get_or_insert_with(|| {
                let origin_ns = event.ts_ns();
                let unix_ns = i128::from(start_ns);
                fleet.trace(
                    (&processes, &unranked),
                    gpu_model.as_deref(),
                    WallClock { origin_ns, unix_ns },
                );
                origin_ns
            });
            let at_ns = start_ns.saturating_add(event.ts_ns().saturating_sub(origin_ns));
            played.end_ns = played.end_ns.max(at_ns);
            played.events.count(&event);
            for tick_ns in idle_ticks(last_ns, event.ts_ns()) {
                let at_ns = start_ns.saturating_add(tick_ns.saturating_sub(origin_ns));
                pacer.wait_until(at_ns).await;
                fleet.tick(tick_ns).await;
            }
            last_ns = event.ts_ns();
            pacer.wait_until(at_ns).await;
            fleet.event(&event).await;
        }
        if fleet.has_given_up() {
            break;
        }
    }
    drop(chunks);
    if let Some(joined) = reader.join_next().await {
        played.result = match joined {
            Ok(read) => read.map_err(ReplayError::from),
            Err(error) => Err(ReplayError::TaskFailed(error)),
        };
    }
    let ending = if played.result.is_ok() {
        Ending::Complete
    } else {
        Ending::Cut
    };
    fleet.end_file(ending).await;
    played
}

/// Times between two events at which live agents would have ticked although nothing happened.
fn idle_ticks(from_ns: u64, to_ns: u64) -> impl Iterator<Item = u64> {
    let ticks = (1..=MAX_TICKS).map(move |n| from_ns.saturating_add(n * REPORT_INTERVAL_NS));
    ticks.take_while(move |at_ns| *at_ns < to_ns)
}

/// Reads a recording to its end, or until the channel is closed.
fn read(mut recording: Recording, chunks: &mpsc::Sender<Vec<Event>>) -> Result<(), SourceError> {
    let mut chunk = Vec::with_capacity(CHUNK);
    loop {
        let end = match recording.next_event() {
            Ok(Some(event)) => {
                chunk.push(event);
                None
            }
            Ok(None) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        if end.is_some() || chunk.len() >= CHUNK {
            let full = std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK));
            if chunks.blocking_send(full).is_err() {
                return Ok(());
            }
        }
        if let Some(end) = end {
            return end;
        }
    }
}
