//! Headers of recordings. The ground truth rows are not read.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;

/// Header of a recording.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recording {
    /// File.
    pub(super) path: PathBuf,
    /// Name, which becomes the name of the cluster.
    pub(super) name: String,
    /// Number of ranks of the job.
    pub(super) n_ranks: u32,
    /// Fault injected into the job while it was recorded, if known.
    pub(super) scenario: Option<String>,
}

/// Error from finding or reading recordings.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The path cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not a recording.
    #[error("{} is not a recording: the first line is not a recording header", path.display())]
    NotRecording {
        /// File.
        path: PathBuf,
        /// Cause.
        source: serde_json::Error,
    },
    /// The directories contain no recordings.
    #[error("no recordings (*.jsonl.gz) in {0}: run from the repository, or give their paths")]
    None(String),
}

#[derive(Deserialize)]
struct Header {
    name: String,
    scenario: Option<serde_json::Value>,
    processes: Vec<serde_json::Value>,
}

/// Reads the recordings at the paths. Directories are searched; their files are sorted by name.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<Recording>, RecordingError> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(recordings_in(path).map_err(|source| unreadable(path, source))?);
        } else {
            files.push(path.clone());
        }
    }
    if files.is_empty() {
        let searched: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(RecordingError::None(searched.join(", ")));
    }
    files.iter().map(|file| read_header(file)).collect()
}

fn recordings_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".jsonl.gz"));
    files.sort();
    Ok(files)
}

fn read_header(path: &Path) -> Result<Recording, RecordingError> {
    let file = File::open(path).map_err(|source| unreadable(path, source))?;
    let mut line = String::new();
    BufReader::new(GzDecoder::new(file))
        .read_line(&mut line)
        .map_err(|source| unreadable(path, source))?;
    let header: Header =
        serde_json::from_str(&line).map_err(|source| RecordingError::NotRecording {
            path: path.to_owned(),
            source,
        })?;
    Ok(Recording {
        path: path.to_owned(),
        name: header.name,
        n_ranks: u32::try_from(header.processes.len()).unwrap_or(u32::MAX),
        scenario: header.scenario.as_ref().map(describe),
    })
}

/// Formats a scenario, as in `host-sleep (ms 8, rank 2)`.
fn describe(scenario: &serde_json::Value) -> String {
    let Some(entries) = scenario.as_object() else {
        return scenario.to_string();
    };
    let kind = entries
        .get("kind")
        .and_then(serde_json::Value::as_str)
        .unwrap_or("unknown");
    let others = entries.iter().filter(|(name, _)| *name != "kind");
    let details: Vec<String> = others
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    format!("{kind} ({})", details.join(", "))
}

fn unreadable(path: &Path, source: std::io::Error) -> RecordingError {
    RecordingError::Unreadable {
        path: path.to_owned(),
        source,
    }
}
