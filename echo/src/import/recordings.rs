//! Recordings of `fleet-agent`: recognised by their first lines, and replayed into the instance by
//! one agent per file, each rank as a node of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use flate2::bufread::MultiGzDecoder;
use fleet_import::report::{Report, SkippedFile};
use serde::Deserialize;
use tokio::process::Command;

use crate::import::error::ImportError;

/// Longest first line of a recording, bytes.
const MAX_HEADER: u64 = 1 << 20;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Recordings of one job.
#[derive(Debug)]
pub(super) struct Recordings {
    files: Vec<PathBuf>,
    /// File of each rank.
    ranks: BTreeMap<u32, PathBuf>,
    world_size: u32,
    /// Files of a folder that are not recordings.
    others: Vec<PathBuf>,
}

/// Where a recording is replayed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// Agent program.
    pub(super) agent: &'a Path,
    /// OTLP endpoint.
    pub(super) endpoint: &'a str,
    /// Name of the cluster.
    pub(super) cluster: &'a str,
}

/// First line of a recording.
#[derive(Debug, Deserialize)]
pub(super) struct Header {
    kind: String,
    processes: Vec<Process>,
    /// Processes that do not call NCCL.
    #[serde(default)]
    unranked: Vec<u32>,
}

#[derive(Debug, Deserialize)]
struct Process {
    rank: u32,
    world_size: u32,
}

/// Summary that an agent prints after its replay.
#[derive(Debug, Deserialize)]
struct Summary {
    points_sent: u64,
    points_dropped: u64,
    error: Option<String>,
}

impl Recordings {
    /// Finds the recordings at the paths, of one job; `None` if no file is one.
    pub(super) fn find(paths: &[PathBuf]) -> Result<Option<Self>, ImportError> {
        let mut found = Self {
            files: Vec::new(),
            ranks: BTreeMap::new(),
            world_size: 0,
            others: Vec::new(),
        };
        let mut named = None;
        for path in paths {
            let is_folder = path.is_dir();
            let files = if is_folder {
                files_in(path).map_err(|error| unreadable(path, &error))?
            } else {
                vec![path.clone()]
            };
            for file in files {
                match header(&file)? {
                    Some(header) => found.add(file, header)?,
                    None if is_folder => found.others.push(file),
                    None => named = named.or(Some(file)),
                }
            }
        }
        match (found.files.first(), named) {
            (None, _) => Ok(None),
            (Some(_), None) => Ok(Some(found)),
            (Some(recording), Some(other)) => Err(ImportError::Input(format!(
                "{} is a recording of fleet-agent and {} is not: import them separately",
                recording.display(),
                other.display()
            ))),
        }
    }

    fn add(&mut self, file: PathBuf, header: Header) -> Result<(), ImportError> {
        for process in header.processes {
            self.world_size = self.world_size.max(process.world_size);
            if let Some(other) = self.ranks.insert(process.rank, file.clone()) {
                return Err(ImportError::Input(format!(
                    "{} and {} are both recordings of rank {}: import jobs one by one",
                    other.display(),
                    file.display(),
                    process.rank
                )));
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// Returns the recordings.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Replays all files at once, as [`Target::replay`].
    pub(super) async fn replay(&self, target: Target<'_>) -> Result<Vec<String>, ImportError> {
        let files = self.files.iter();
        let replays: Vec<_> = files.map(|file| (file.as_path(), Node::PerRank)).collect();
        target.replay(&replays).await
    }

    /// Returns the report about the files, of which these have an unreadable end; the instance
    /// judges their events.
    pub(super) fn into_report(self, unread_ends: Vec<String>) -> Report {
        let ranks = self.ranks.into_keys().collect();
        let others = self.others.iter();
        let others =
            others.map(|file| format!("{}: not a recording of fleet-agent", file.display()));
        let reasons = others.chain(unread_ends);
        let skipped = reasons.map(|reason| SkippedFile { reason });
        Report::of_recordings(&ranks, self.world_size, skipped.collect())
    }
}

/// Node that a recording is replayed as.
#[derive(Debug, Clone, Copy)]
pub(super) enum Node<'a> {
    /// A node for each rank.
    PerRank,
    /// One node with this name.
    Named(&'a str),
}

impl Target<'_> {
    /// Replays the files at once, as fast as the instance accepts the events. Returns why the ends
    /// of files could not be read: a recording ends early if its agent was killed or its disk was
    /// full.
    pub(super) async fn replay(
        self,
        files: &[(&Path, Node<'_>)],
    ) -> Result<Vec<String>, ImportError> {
        let start_at = jiff::Timestamp::now().to_string();
        let mut running = Vec::new();
        for (file, node) in files {
            let mut command = Command::new(self.agent);
            command.args([
                "replay",
                "--endpoint",
                self.endpoint,
                "--cluster",
                self.cluster,
                // The answers are those of `fleet-agent explain FILE`, of short recordings too.
                "--report-period",
                "5s",
            ]);
            match node {
                Node::PerRank => command.arg("--node-per-rank"),
                Node::Named(name) => command.args(["--node", name]),
            };
            let child = command
                .args(["--speed", "max", "--start-at", &start_at])
                .args(["--json", "--"])
                .arg(file)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            running.push(child);
        }
        let mut unread_ends = Vec::new();
        for child in running {
            let output = child.wait_with_output().await?;
            let Ok(summary) = serde_json::from_slice::<Summary>(&output.stdout) else {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let last = stderr.lines().last().unwrap_or("no error output");
                let reason = format!("the agent failed ({}): {last}", output.status);
                return Err(ImportError::Input(reason));
            };
            match summary.error {
                Some(error) if summary.points_dropped > 0 => {
                    return Err(ImportError::NotStored(error));
                }
                Some(error) if summary.points_sent > 0 => unread_ends.push(error),
                Some(error) => return Err(ImportError::Input(error)),
                None => {}
            }
        }
        Ok(unread_ends)
    }
}

/// Returns the files of a folder in order of their names, without hidden ones.
pub(super) fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = folder.read_dir()?.collect::<Result<Vec<_>, _>>()?;
    let is_hidden = |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(b".");
    let shown = entries
        .into_iter()
        .filter(|entry| !is_hidden(&entry.file_name()));
    let mut files: Vec<PathBuf> = shown
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    Ok(files)
}

/// Returns the header of a recording, gzipped or not; `None` if the file is not one.
pub(super) fn header(path: &Path) -> Result<Option<Header>, ImportError> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    Ok(parse_header(file))
}

fn parse_header(file: File) -> Option<Header> {
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    if file.fill_buf().ok()?.starts_with(&GZIP_MAGIC) {
        first_line(MultiGzDecoder::new(file), &mut line)?;
    } else {
        first_line(file, &mut line)?;
    }
    let header: Header = serde_json::from_slice(&line).ok()?;
    let is_empty = header.processes.is_empty() && header.unranked.is_empty();
    let is_recording = header.kind == "header" && !is_empty;
    is_recording.then_some(header)
}

fn first_line(reader: impl Read, line: &mut Vec<u8>) -> Option<usize> {
    let mut reader = BufReader::new(reader.take(MAX_HEADER));
    reader.read_until(b'\n', line).ok()
}

pub(super) fn unreadable(path: &Path, error: &io::Error) -> ImportError {
    ImportError::Input(format!("{}: cannot be read ({error})", path.display()))
}
