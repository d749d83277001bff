//! Recordings: JSON lines, usually gzipped, with a header first.
//!
//! Lines of kind `truth` contain measurements of the recorded job itself, for scoring only. They
//! are dropped here, so that no later stage can see them.

pub(crate) mod delays;
mod device;
pub(crate) mod durations;
mod head;
mod line;
pub(crate) mod stacks;

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;
use fleet_agent_core::event::{Event, Process, Stack};
use serde::Deserialize;

use crate::recording::device::Row;
use crate::recording::device::device_only::{self, MAX_ROWS};
use crate::recording::head::Head;
use crate::recording::line::Line;
use crate::source::{EventSource, SourceError};

/// Maximum length of a line, bytes. The longest lines of a recording are the `truth` lines.
const MAX_LINE: u64 = 1 << 20;
/// Maximum time between consecutive events, nanoseconds. A larger one is a corrupt number, for
/// which a replay must not wait.
const MAX_STEP_NS: u64 = 3_600_000_000_000;
/// Maximum number of different stacks; samples of further ones are skipped.
const MAX_STACKS: usize = 100_000;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reader of one recording.
pub struct Recording {
    path: String,
    reader: Box<dyn BufRead + Send>,
    line: u64,
    buffer: Vec<u8>,
    processes: Vec<Process>,
    unranked: Vec<u32>,
    /// Rank whose calls alone are read with their arguments.
    only_rank: Option<u32>,
    gpu_model: Option<String>,
    last_ts_ns: Option<u64>,
    stacks: HashMap<u64, Stack>,
    /// Events of rows that were read all at once.
    device_events: VecDeque<Event>,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording")
            .field("path", &self.path)
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Header {
    kind: String,
    processes: Vec<HeaderProcess>,
    #[serde(default)]
    unranked: Vec<u32>,
    hardware: Option<String>,
}

#[derive(Deserialize)]
struct HeaderProcess {
    pid: u32,
    rank: u32,
    world_size: u32,
}

impl Recording {
    /// Opens a recording and reads its header. `path` is only used in messages.
    pub fn new(path: &str, file: impl Read + Send + 'static) -> Result<Self, SourceError> {
        let mut file = BufReader::new(file);
        let start = file.fill_buf().map_err(|source| open_error(path, source))?;
        let reader: Box<dyn BufRead + Send> = if start.starts_with(&GZIP_MAGIC) {
            Box::new(BufReader::new(MultiGzDecoder::new(file)))
        } else {
            Box::new(file)
        };
        let mut recording = Self {
            path: path.to_owned(),
            reader,
            line: 0,
            buffer: Vec::new(),
            processes: Vec::new(),
            unranked: Vec::new(),
            only_rank: None,
            gpu_model: None,
            last_ts_ns: None,
            stacks: HashMap::new(),
            device_events: VecDeque::new(),
        };
        recording.read_header()?;
        Ok(recording)
    }

    /// Returns the model of the recorded GPUs, if the header contains it.
    pub fn gpu_model(&self) -> Option<&str> {
        self.gpu_model.as_deref()
    }

    /// Returns the processes that call the GPU's libraries, but not NCCL.
    pub fn unranked(&self) -> &[u32] {
        &self.unranked
    }

    /// Yields the calls of processes of other ranks with their time and process only, since most of
    /// the time to read a recording is spent on their arguments.
    #[must_use]
    pub fn with_arguments_of(mut self, rank: u32) -> Self {
        self.only_rank = Some(rank);
        self
    }

    /// Returns the event of the line if it is about a call whose arguments are not needed.
    fn event_without_arguments(&self) -> Option<Event> {
        let rank = self.only_rank?;
        let head = Head::read(&self.buffer)?;
        let is_needed = |process: &Process| process.pid == head.pid && process.rank == rank;
        if self.processes.iter().any(is_needed) {
            return None;
        }
        head.event()
    }

    fn read_header(&mut self) -> Result<(), SourceError> {
        if !self.read_line()? {
            return Err(self.foreign("the file is empty"));
        }
        let header: Header = serde_json::from_slice(&self.buffer)
            .map_err(|error| self.foreign(&format!("invalid header: {error}")))?;
        if header.kind != "header" || (header.processes.is_empty() && header.unranked.is_empty()) {
            return Err(self.foreign("the header lists no processes"));
        }
        let parse = |process: HeaderProcess| {
            let HeaderProcess {
                pid,
                rank,
                world_size,
            } = process;
            (rank < world_size).then_some(Process {
                pid,
                rank,
                world_size,
            })
        };
        self.processes = header
            .processes
            .into_iter()
            .map(parse)
            .collect::<Option<_>>()
            .ok_or_else(|| self.foreign("a rank in the header is not below its world size"))?;
        self.unranked = header.unranked;
        self.gpu_model = header.hardware.as_deref().and_then(gpu_model);
        Ok(())
    }

    /// Reads the next line into the buffer; returns false at the end.
    fn read_line(&mut self) -> Result<bool, SourceError> {
        self.buffer.clear();
        let read = self
            .reader
            .as_mut()
            .take(MAX_LINE)
            .read_until(b'\n', &mut self.buffer);
        self.line += 1;
        match read {
            Ok(0) => Ok(false),
            Ok(_) if self.buffer.ends_with(b"\n") || self.buffer.len() < to_usize(MAX_LINE) => {
                Ok(true)
            }
            Ok(_) => Err(self.damaged(format!("longer than {MAX_LINE} bytes"))),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.truncated("the gzip stream is truncated"))
            }
            Err(error) => Err(self.damaged(error.to_string())),
        }
    }

    /// Records the time of an event, or returns what is wrong with it.
    fn check_step(&mut self, ts_ns: u64) -> Result<(), String> {
        let last_ns = self.last_ts_ns.unwrap_or(ts_ns);
        if ts_ns.abs_diff(last_ns) > MAX_STEP_NS {
            return Err(format!(
                "ts {ts_ns} is more than an hour away from the previous event, {last_ns}"
            ));
        }
        self.last_ts_ns = Some(ts_ns);
        Ok(())
    }

    /// Returns the event of a GPU row. If the row has no process, all rows are read, and the first
    /// event is returned.
    fn row(&mut self) -> Result<Option<Event>, SourceError> {
        let row: Row<'_> = match serde_json::from_slice(&self.buffer) {
            Ok(row) => row,
            Err(_) if !self.buffer.ends_with(b"\n") => {
                return Err(self.truncated("the line is truncated"));
            }
            Err(error) => return Err(self.damaged(error.to_string())),
        };
        if row.is_placed() {
            let event = row
                .event()
                .map_err(|reason| self.damaged(reason.to_owned()))?;
            self.check_step(event.ts_ns())
                .map_err(|reason| self.damaged(reason))?;
            return Ok(Some(event));
        }
        let mut rows = Vec::new();
        loop {
            if device::is_row(&self.buffer) {
                let parsed = serde_json::from_slice::<Row<'_>>(&self.buffer)
                    .map_err(|error| error.to_string())
                    .and_then(|row| row.parse().map_err(str::to_owned));
                rows.push(parsed.map_err(|reason| self.damaged(reason))?);
            }
            if rows.len() > MAX_ROWS {
                return Err(self.damaged(format!("more than {MAX_ROWS} rows without a process")));
            }
            if !self.read_line()? {
                break;
            }
        }
        self.device_events =
            device_only::events(rows, &self.processes).map_err(|reason| self.damaged(reason))?;
        Ok(self.device_events.pop_front())
    }

    fn foreign(&self, reason: &str) -> SourceError {
        let (path, line) = (self.path.clone(), self.line);
        SourceError::Foreign {
            path,
            line,
            reason: reason.to_owned(),
        }
    }

    fn truncated(&self, reason: &str) -> SourceError {
        let (path, line) = (self.path.clone(), self.line);
        SourceError::Truncated {
            path,
            line,
            reason: reason.to_owned(),
        }
    }

    fn damaged(&self, reason: String) -> SourceError {
        SourceError::Damaged {
            path: self.path.clone(),
            line: self.line,
            reason,
        }
    }
}

impl EventSource for Recording {
    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn next_event(&mut self) -> Result<Option<Event>, SourceError> {
        if let Some(event) = self.device_events.pop_front() {
            return Ok(Some(event));
        }
        while self.read_line()? {
            if device::is_row(&self.buffer) {
                return self.row();
            }
            if let Some(event) = self.event_without_arguments() {
                self.check_step(event.ts_ns())
                    .map_err(|reason| self.damaged(reason))?;
                return Ok(Some(event));
            }
            match serde_json::from_slice::<Line<'_>>(&self.buffer) {
                Ok(line) => {
                    if let Some((id, stack)) = line.stack()
                        && self.stacks.len() < MAX_STACKS
                    {
                        self.stacks.insert(id, stack);
                    }
                    let event = line
                        .event(&self.stacks)
                        .map_err(|reason| self.damaged(reason.to_owned()))?;
                    // Quiet periods have lines of their own, so a large step in time is always an
                    // error.
                    let quiet_ns = line.ts.filter(|_| line.kind == "quiet");
                    if let Some(ts_ns) = event.as_ref().map(Event::ts_ns).or(quiet_ns) {
                        self.check_step(ts_ns)
                            .map_err(|reason| self.damaged(reason))?;
                    }
                    if event.is_some() {
                        return Ok(event);
                    }
                }
                // Only the last line can be truncated.
                Err(_) if !self.buffer.ends_with(b"\n") => {
                    return Err(self.truncated("the line is truncated"));
                }
                Err(error) => return Err(self.damaged(error.to_string())),
            }
        }
        Ok(None)
    }
}

/// `4x NVIDIA H200 (NVLink NV18), one host` -> `NVIDIA H200`.
fn gpu_model(hardware: &str) -> Option<String> {
    let (count, rest) = hardware.split_once("x ")?;
    count.parse::<u32>().ok()?;
    let model = rest.split(['(', ',']).next()?.trim();
    (!model.is_empty()).then(|| model.to_owned())
}

fn open_error(path: &str, source: std::io::Error) -> SourceError {
    SourceError::Open {
        path: path.to_owned(),
        source,
    }
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
