//! Files of one job, one per rank, added one after the other.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use fleet_agent_core::printable::printable;
use fleet_agent_core::ras::Status;
use fleet_hang::{Group, Job};

use crate::blocks::{self, RankPoints};
use crate::calls::{self, Calls};
use crate::flight_recorder::Dump;
use crate::format::Format;
use crate::inspector::{self, ProcessTrace};
use crate::lateness::late_ranks;
use crate::matching::matched;
use crate::nsys::{self, FileGpus};
use crate::progress::reports;
use crate::rank_name::{named_rank, possible_rank, trailing_number};
use crate::report::{Report, SkippedFile};
use crate::trace::RankTrace;
use crate::transfers::has_pending_transfers;
use crate::waiting::{late_together, waiting};
use crate::watchdog::WatchdogLog;
use crate::{bytedance, hang, kineto, ras};

mod ranks;

use ranks::UnplacedTrace;

/// Mark at the beginning of text that other systems wrote.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Maximum length of the reason why a file is not read, characters: it may quote the file.
const MAX_REASON: usize = 300;
/// Maximum number of kernels that are not understood and that are listed.
const LISTED_KERNELS: usize = 5;
/// Maximum length of the name of a kernel, characters.
const MAX_NAME: usize = 80;

/// Refusal of dumps in which no rank is behind, but sends and receives have not ended.
const PENDING_TRANSFERS: &str = "sends and receives are pending, and both sides have enqueued them: network or GPU, no rank is named";

/// Error of one file or of the set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The format is not known.
    #[error(
        "{0}: none of the formats that are recognised by content: PyTorch profiler (Kineto) traces, PyTorch Flight Recorder dumps (pickle or JSON), NCCL Inspector lines, recordings of fleet-agent, answers of NCCL's RAS subsystem, logs of PyTorch's watchdog, tables of call times (CSV), operations of StragglerAnalysis (Parquet), Nsight Systems exports (SQLite)"
    )]
    Unknown(String),
    /// The content is damaged or refused.
    #[error("{file}: {reason}")]
    Damaged {
        /// File.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The files are of different formats.
    #[error("{file} is one of {found}, the files before it are {known}: import them separately")]
    Mixed {
        /// File.
        file: String,
        /// Its format.
        found: Format,
        /// Format of the files before.
        known: Format,
    },
    /// Two files are of one rank.
    #[error("{file} and {other} are both of rank {rank}: give one file per rank")]
    SameRank {
        /// File.
        file: String,
        /// File with the same rank.
        other: String,
        /// The rank.
        rank: u32,
    },
    /// The file is a recording, which is replayed and not converted.
    #[error(
        "{0} is a recording of fleet-agent: send it with fleet-agent replay, or give it to fleet-echo import"
    )]
    Recording(String),
    /// No file was read.
    #[error("no file was found: a folder has to hold the files itself, or in one folder below it")]
    Empty,
}

/// Files read so far.
#[derive(Debug, Default)]
pub struct TraceSet {
    format: Option<Format>,
    skipped: Vec<SkippedFile>,
    files: BTreeMap<u32, String>,
    dumps: BTreeMap<u32, Dump>,
    traces: BTreeMap<u32, RankTrace>,
    /// Traces without a known rank, by the name of their file without the time of the window.
    unplaced: BTreeMap<String, UnplacedTrace>,
    notes: Vec<String>,
    processes: Vec<ProcessTrace>,
    calls: Calls,
    gpus: Vec<FileGpus>,
    status: Option<Status>,
    watchdog: WatchdogLog,
}

/// Report and points of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// What the set shows.
    pub report: Report,
    /// Points of each rank; empty where the set does not show iterations.
    pub points: Vec<RankPoints>,
    /// Progress of the ranks of a hang, one block per report.
    pub progress: Vec<RankPoints>,
    /// Operations of each rank.
    pub traces: BTreeMap<u32, RankTrace>,
}

impl TraceSet {
    /// Adds a file by its uncompressed content. The set is unchanged on an error.
    pub fn add(&mut self, file: &str, bytes: &[u8]) -> Result<(), ImportError> {
        let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        let format = Format::recognise(bytes);
        let format = format.ok_or_else(|| ImportError::Unknown(file.to_owned()))?;
        self.accept(file, format)?;
        let name = file.rsplit('/').next().unwrap_or(file);
        let damaged = |reason: String| ImportError::Damaged {
            file: file.to_owned(),
            reason: printable(&reason, MAX_REASON),
        };
        match format {
            Format::Kineto => {
                let trace =
                    kineto::read(bytes, name).map_err(|error| damaged(error.to_string()))?;
                self.add_profile(file, name, trace)?;
            }
            Format::FlightRecorder => {
                let dump = Dump::read(bytes).map_err(|error| damaged(error.to_string()))?;
                let rank = self.claim(file, dump.rank(name))?;
                self.traces.insert(rank, dump.timed(rank));
                self.dumps.insert(rank, dump);
            }
            Format::Inspector => {
                let processes = inspector::read(bytes, file).map_err(damaged)?;
                self.processes.extend(processes);
            }
            Format::Calls => {
                let calls = calls::read(bytes).map_err(|error| damaged(error.to_string()))?;
                self.claim_all(file, calls.ranks())?;
                self.calls.extend(calls);
            }
            Format::Operations => {
                let traces = bytedance::read(bytes).map_err(|error| damaged(error.to_string()))?;
                self.claim_all(file, traces.iter().filter_map(|trace| trace.rank))?;
                let by_rank = traces
                    .into_iter()
                    .filter_map(|trace| Some((trace.rank?, trace)));
                self.traces.extend(by_rank);
            }
            Format::RasStatus => {
                if self.status.is_some() {
                    let reason = "one answer tells about all ranks: import others separately";
                    return Err(damaged(reason.to_owned()));
                }
                self.status = Some(ras::read(bytes).map_err(|error| damaged(error.to_string()))?);
            }
            Format::Watchdog => self.watchdog.add(bytes),
            Format::Nsys => {
                return Err(damaged(
                    "a compressed database is not read: unpack it".to_owned(),
                ));
            }
            Format::Recording => return Err(ImportError::Recording(file.to_owned())),
        }
        self.format = Some(format);
        Ok(())
    }

    /// Adds a trace of the profiler, and says what of it could not be read.
    fn add_profile(&mut self, file: &str, name: &str, trace: RankTrace) -> Result<(), ImportError> {
        let n_unread = trace.n_unread;
        let file = file.to_owned();
        match trace.rank {
            Some(rank) => self.add_window(file.clone(), rank, trace)?,
            None => self.add_unplaced(UnplacedTrace {
                file: file.clone(),
                numbers: [possible_rank(name), trailing_number(name)],
                trace,
            }),
        }
        if n_unread > 0 {
            let reason = format!("{} of it; the others are read", counted(n_unread, "event"));
            self.skip(&ImportError::Damaged { file, reason });
        }
        Ok(())
    }

    /// Adds the GPUs of an export of Nsight Systems.
    pub fn add_gpus(&mut self, file: &str, gpus: Vec<RankTrace>) -> Result<(), ImportError> {
        self.accept(file, Format::Nsys)?;
        let name = file.rsplit('/').next().unwrap_or(file);
        let number = named_rank(name).or_else(|| trailing_number(name));
        self.gpus.push((number, gpus));
        self.format = Some(Format::Nsys);
        Ok(())
    }

    /// Checks the format against that of the files before.
    fn accept(&self, file: &str, format: Format) -> Result<(), ImportError> {
        match self.format.filter(|known| *known != format) {
            None => Ok(()),
            Some(known) => Err(ImportError::Mixed {
                file: file.to_owned(),
                found: format,
                known,
            }),
        }
    }

    /// Records a file that was not read.
    pub fn skip(&mut self, error: &ImportError) {
        self.skipped.push(SkippedFile {
            reason: error.to_string(),
        });
    }

    /// Assigns a rank to a file.
    fn claim(&mut self, file: &str, rank: Option<u32>) -> Result<u32, ImportError> {
        let Some(rank) = rank else {
            return Err(ImportError::Damaged {
                file: file.to_owned(),
                reason: "neither the content nor the name tells the rank: name it like rank_3"
                    .to_owned(),
            });
        };
        self.claim_all(file, [rank])?;
        Ok(rank)
    }

    /// Assigns ranks to a file, all or none.
    fn claim_all(
        &mut self,
        file: &str,
        ranks: impl IntoIterator<Item = u32>,
    ) -> Result<(), ImportError> {
        let ranks: Vec<u32> = ranks.into_iter().collect();
        for rank in &ranks {
            if let Some(other) = self.files.get(rank) {
                return Err(ImportError::SameRank {
                    file: file.to_owned(),
                    other: other.clone(),
                    rank: *rank,
                });
            }
        }
        self.files
            .extend(ranks.into_iter().map(|rank| (rank, file.to_owned())));
        Ok(())
    }

    /// Gives each process of the Inspector its rank.
    fn place_processes(&mut self) -> Result<(), ImportError> {
        let mut processes = std::mem::take(&mut self.processes);
        inspector::place(&mut processes);
        for process in processes {
            match self.claim(&process.file, process.trace.rank) {
                Ok(rank) => {
                    self.traces.insert(rank, process.trace);
                }
                Err(error @ ImportError::Damaged { .. }) => self.skip(&error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Analyses the set.
    pub fn finish(mut self) -> Result<Imported, ImportError> {
        let format = self.format.ok_or(ImportError::Empty)?;
        self.place_processes()?;
        self.place_traces();
        self.traces.extend(nsys::place(self.gpus));
        let refusal = match self.calls.traces() {
            Ok(traces) => {
                self.traces.extend(traces);
                None
            }
            Err(reason) => Some(reason),
        };
        let job = match (format, &self.status) {
            (Format::RasStatus, Some(status)) => ras::job(status),
            (Format::Watchdog, _) => self.watchdog.job(),
            _ => hang::job(&self.dumps),
        };
        if matches!(format, Format::RasStatus | Format::Watchdog) {
            self.traces = observed(&job);
        }
        self.notes.extend(kernel_notes(&self.traces));
        let hang = fleet_hang::analyse(&job);
        let mut report = Report::new(format, &self.traces, hang, self.skipped);
        report.notes = self.notes;
        if report.advance.is_none() && self.dumps.values().any(has_pending_transfers) {
            report.refusal = report.refusal.map(|_| PENDING_TRANSFERS.to_owned());
        }
        report.refusal = refusal.or(report.refusal);
        let mut points = Vec::new();
        if report.refusal.is_none() {
            let groups = matched(&self.traces);
            report.late = late_ranks(&self.traces, &groups);
            report.waiting = waiting(&groups);
            if report.late.is_empty() {
                report.late_together = late_together(&groups);
            }
            points = blocks::points(&self.traces);
        }
        let hang = report.hang.as_ref();
        let progress = hang.map_or_else(Vec::new, |hang| reports(&job, hang));
        report.iterations = points.first().map(|own| own.blocks.len());
        Ok(Imported {
            report,
            points,
            progress,
            traces: self.traces,
        })
    }
}

/// Returns what is assumed about kernels, and which are not understood.
fn kernel_notes(traces: &BTreeMap<u32, RankTrace>) -> Vec<String> {
    let mut notes = Vec::new();
    let n_assumed: u64 = traces.values().map(|trace| trace.n_assumed).sum();
    if n_assumed > 0 {
        let kernels = counted(n_assumed, "kernel");
        notes.push(format!(
            "{kernels} of RCCL that do not name their operation: assumed to be all-reduces, and compared in the order of their streams"
        ));
    }
    let mut unclear: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (name, (n, ns)) in traces.values().flat_map(|trace| &trace.unclear) {
        let sum = unclear.entry(name).or_default();
        *sum = (sum.0 + n, sum.1.saturating_add(*ns));
    }
    let mut unclear: Vec<_> = unclear.into_iter().collect();
    unclear.sort_by_key(|(_, (_, ns))| Reverse(*ns));
    for (name, (n, ns)) in unclear.into_iter().take(LISTED_KERNELS) {
        let kernels = counted(n, "kernel");
        notes.push(format!(
            "not understood: {kernels} {} that seem to communicate, {:.1} ms; the ranks are not compared by them",
            printable(name, MAX_NAME),
            Duration::from_nanos(ns).as_secs_f64() * 1e3
        ));
    }
    notes
}

fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Returns the ranks of which something is known, without operations that can be compared.
fn observed(job: &Job) -> BTreeMap<u32, RankTrace> {
    let members = |group: &Group| group.members.iter().copied().collect::<Vec<u32>>();
    let groups = job.groups.iter();
    let groups: BTreeMap<String, Vec<u32>> = groups
        .map(|group| (group.name.clone(), members(group)))
        .collect();
    let of_groups = job.groups.iter().flat_map(|group| group.progress.keys());
    let ranks = of_groups.chain(job.processes.keys());
    let trace = |rank: &u32| RankTrace {
        rank: Some(*rank),
        groups: groups.clone(),
        ..RankTrace::default()
    };
    ranks.map(|rank| (*rank, trace(rank))).collect()
}

#[cfg(test)]
mod tests;
