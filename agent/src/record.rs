//! Recorder of this host's GPU jobs: writes the events of a watch to a file that can be replayed.

mod stacks;
pub mod summary;

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use fleet_agent_sources::live::Stop;
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::recorder::Recorder;
use fleet_agent_sources::recorder::file::{Overwrite, RecordingFile};
use fleet_agent_sources::recorder::header::Header;
use fleet_agent_sources::watch::{FunctionSum, PollResult, Watch, WatchError, cpus, now_ns};
use indicatif::{ProgressBar, ProgressStyle};
use thiserror::Error;
use tokio::task::{JoinError, spawn_blocking};

use crate::config::RecordArgs;
use crate::gpu::{Gpu, Gpus};
use crate::host_conditions::{ConditionsBeside, with_readings};
use crate::record::stacks::RecordedStacks;
use crate::record::summary::Summary;

/// Flush interval of the file, nanoseconds.
const FLUSH_NS: u64 = 1_000_000_000;

/// Interval at which the sharing of GPUs is read.
const CONDITIONS_INTERVAL: Duration = Duration::from_secs(1);

/// Error of a recording.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The host cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The file exists.
    #[error("{path} exists; choose another name or use --overwrite")]
    Exists {
        /// The file.
        path: String,
    },
    /// The file cannot be written.
    #[error("cannot write {path}: {source}; check its directory, permissions and free space")]
    File {
        /// The file.
        path: String,
        /// Error of the system.
        source: io::Error,
    },
    /// No process called a GPU library.
    #[error(
        "{path}: nothing to record: no process {selected}called a GPU library{unplaced}; \
         `fleet-agent check` lists what is watched"
    )]
    NoRanks {
        /// The file, which has been removed.
        path: String,
        /// Processes selected by --pid, as part of the message.
        selected: &'static str,
        /// Processes without a known rank, as part of the message.
        unplaced: String,
    },
    /// A task of the recorder panicked.
    #[error(
        "internal error: a task of the recording failed ({0}); the file holds what was recorded before"
    )]
    TaskFailed(#[from] JoinError),
}

/// Records until `stop` resolves or the duration has passed. On an error the summary still counts
/// what was recorded before.
pub async fn record(
    args: &RecordArgs,
    stop: impl Future<Output = ()>,
    progress: &ProgressBar,
) -> (Summary, Result<(), RecordError>) {
    let gpus = Gpus::open(Path::new("/proc")).all().await;
    let cores = cpus(Path::new("/sys")).map_or(0, |cpus| cpus.len());
    let hardware = describe_hardware(&gpus.unwrap_or_default(), cores);
    let stop_request = Stop::default();
    let mut session = Session {
        args: args.clone(),
        stop: stop_request.clone(),
        progress: progress.clone(),
        summary: Summary {
            file: args.file.display().to_string(),
            ..Summary::default()
        },
    };
    let (conditions, readings) = ConditionsBeside::new(CONDITIONS_INTERVAL);
    let mut recording = spawn_blocking(move || {
        let result = session.run(hardware, conditions);
        (session.summary, result)
    });
    let recorded = async {
        tokio::select! {
            joined = &mut recording => joined,
            () = stop => {
                stop_request.request();
                recording.await
            }
        }
    };
    let joined = with_readings(recorded, readings).await;
    joined.unwrap_or_else(|error| (Summary::default(), Err(error.into())))
}

/// Spinner that shows the progress of the recording on a terminal.
pub fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.set_message("recording");
    bar
}

/// One recording.
struct Session {
    args: RecordArgs,
    stop: Stop,
    progress: ProgressBar,
    summary: Summary,
}

impl Session {
    fn run(&mut self, hardware: String, conditions: ConditionsBeside) -> Result<(), RecordError> {
        let header = Header {
            name: recording_name(&self.args.file),
            hardware,
            ..Header::default()
        };
        // The file is created first, so that no probes are attached in vain.
        let file = self.create(&header)?;
        let result = self.watch(file, header, conditions);
        if self.summary.is_empty() {
            // A recording without processes is not valid. If removal fails, the error still names
            // the file.
            let _removed = std::fs::remove_file(&self.args.file);
        }
        result
    }

    fn create(&self, header: &Header) -> Result<RecordingFile, RecordError> {
        let overwrite = if self.args.overwrite {
            Overwrite::Existing
        } else {
            Overwrite::Never
        };
        let created = RecordingFile::create(&self.args.file, overwrite, &header.line(&[], &[]));
        created.map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => RecordError::Exists {
                path: self.summary.file.clone(),
            },
            _ => self.file_error(source),
        })
    }

    fn watch(
        &mut self,
        mut file: RecordingFile,
        mut header: Header,
        mut conditions: ConditionsBeside,
    ) -> Result<(), RecordError> {
        let mut settings = self.args.probes.settings(Duration::ZERO);
        settings.without_host = false;
        settings.count_options.all_processes = true;
        let mut watch = Watch::start(&settings)?;
        let started_ns = now_ns();
        let length_ns = self.args.duration.map_or(u64::MAX, |duration| {
            u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
        });
        let mut recorder = Recorder::new(&self.args.pid, Processes::new("/proc"), started_ns);
        let mut stacks = RecordedStacks::new(!self.args.without_stacks, watch.calls(), started_ns);
        let mut flushed_ns = started_ns;
        let mut is_last = false;
        while !is_last {
            is_last = self.stop.is_requested() || now_ns().saturating_sub(started_ns) >= length_ns;
            if is_last {
                recorder.stop_waiting();
            }
            let mut polled = watch.poll();
            recorder.size_comms(&mut polled, |pid, pointer| {
                watch.comm_rank_and_size(pid, pointer)
            });
            for (pid, pointer) in recorder.due_reads() {
                if let Some(state) = watch.comm_state(pid, pointer) {
                    recorder.push_state(state);
                }
            }
            stacks.sample(&polled, &mut recorder, is_last);
            let sums = read_counters(&watch, &mut recorder, &mut stacks, &polled);
            let lines = recorder.record(&polled, sums.as_deref(), watch.losses().events());
            read_conditions(&mut conditions, &mut recorder, self.summary.processes);
            for pid in polled.exited.into_iter().chain(polled.detached) {
                conditions.remove_process(pid);
                if recorder.take_observed(pid) {
                    watch.forget(pid);
                }
            }
            let written = file.append(&lines).and_then(|()| {
                let known = (self.summary.processes, self.summary.unranked);
                if (recorder.processes().len(), recorder.unranked().len()) != known {
                    describe_tools(&mut header, &watch);
                    file.set_header(&header.line(recorder.processes(), recorder.unranked()))?;
                }
                if polled.until_ns.saturating_sub(flushed_ns) >= FLUSH_NS {
                    flushed_ns = polled.until_ns;
                    file.flush()?;
                }
                file.size()
            });
            self.summary.processes = recorder.processes().len();
            self.summary.unranked = recorder.unranked().len();
            self.summary.counts = recorder.counts();
            self.summary.elapsed_ns = now_ns().saturating_sub(started_ns);
            self.summary.bytes = written.map_err(|source| self.file_error(source))?;
            self.show_progress();
        }
        stacks.log_limits();
        self.summary.bytes = file.finish().map_err(|source| self.file_error(source))?;
        self.no_ranks().map_or(Ok(()), Err)
    }

    fn show_progress(&self) {
        let Summary {
            processes,
            counts,
            bytes,
            ..
        } = &self.summary;
        self.progress.set_message(format!(
            "recording {processes} ranks: {} calls, {} lost, {bytes} bytes",
            counts.calls, counts.lost
        ));
        self.progress.tick();
    }

    fn no_ranks(&self) -> Option<RecordError> {
        let unplaced = match self.summary.counts.unplaced {
            0 => String::new(),
            unplaced => format!(", but {unplaced} processes have no known rank"),
        };
        self.summary.is_empty().then(|| RecordError::NoRanks {
            path: self.summary.file.clone(),
            selected: if self.args.pid.is_empty() {
                ""
            } else {
                "given by --pid "
            },
            unplaced,
        })
    }

    fn file_error(&self, source: io::Error) -> RecordError {
        RecordError::File {
            path: self.summary.file.clone(),
            source,
        }
    }
}

/// Adds the conditions that were read, and requests those of the ranks after the first `known` ones.
fn read_conditions(conditions: &mut ConditionsBeside, recorder: &mut Recorder, known: usize) {
    for process in recorder.processes().iter().skip(known) {
        conditions.add_process(process.pid);
    }
    for event in conditions.take() {
        recorder.push_condition(&event);
    }
}

/// Adds the counters of the kernel that are due, and returns those of functions.
fn read_counters(
    watch: &Watch,
    recorder: &mut Recorder,
    stacks: &mut RecordedStacks,
    polled: &PollResult,
) -> Option<Vec<FunctionSum>> {
    if recorder.are_delays_due(polled)
        && let Some(delays) = watch.delays()
    {
        recorder.push_delays(polled.until_ns, &delays);
        watch.remove_delays(&recorder.take_idle_delays());
    }
    let histograms = recorder.is_window_due(polled).then(|| watch.histograms())?;
    for durations in recorder.push_durations(polled, &histograms) {
        stacks.on_durations(&durations);
    }
    let mut sums = watch.sums();
    sums.extend(histograms.sums());
    Some(sums)
}

/// Records in the header which tools the recording was made with.
fn describe_tools(header: &mut Header, watch: &Watch) {
    let health = watch.health();
    let libraries = health.probed.iter().map(|path| {
        let path = Path::new(path).file_name().unwrap_or_default();
        path.to_string_lossy().into_owned()
    });
    let mut libraries: Vec<String> = libraries.collect();
    libraries.sort();
    libraries.dedup();
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    libraries.push(format!("Linux {release}"));
    header.software = libraries.join(", ");
    header.source = format!(
        "fleet-agent {}, {}",
        env!("CARGO_PKG_VERSION"),
        health.abilities.mechanism
    );
}

/// File name without the extensions of the format.
fn recording_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.strip_suffix(".jsonl").unwrap_or(name).to_owned()
}

/// `8x NVIDIA H100 80GB HBM3, one host, 192 cores`.
fn describe_hardware(gpus: &[Gpu], cores: usize) -> String {
    let host = format!("one host, {cores} cores");
    let Some(first) = gpus.first() else {
        return host;
    };
    match &first.model {
        Some(model) if gpus.iter().all(|gpu| gpu.model == first.model) => {
            format!("{}x {model}, {host}", gpus.len())
        }
        _ => format!("{} GPUs of several models, {host}", gpus.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, model: &str) -> Gpu {
        Gpu {
            index,
            uuid: None,
            model: Some(model.to_owned()),
        }
    }

    #[test]
    fn the_hardware_is_described_by_model_hosts_and_cores() {
        let alike = [gpu(0, "NVIDIA H200"), gpu(1, "NVIDIA H200")];
        assert_eq!(
            describe_hardware(&alike, 64),
            "2x NVIDIA H200, one host, 64 cores"
        );
        let mixed = [gpu(0, "NVIDIA H200"), gpu(1, "NVIDIA L4")];
        assert_eq!(
            describe_hardware(&mixed, 64),
            "2 GPUs of several models, one host, 64 cores"
        );
        assert_eq!(describe_hardware(&[], 2), "one host, 2 cores");
    }
}
