//! What a recording says about itself in its first line. Its truth rows are not read.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;

/// A recording, as far as the demo needs to know it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recording {
    /// The file.
    pub(super) path: PathBuf,
    /// Its name, which becomes the name of the cluster.
    pub(super) name: String,
    /// Ranks of the job.
    pub(super) n_ranks: u32,
    /// What was done to the job while it was recorded, where that is known.
    pub(super) scenario: Option<String>,
}

/// Why there is nothing to replay.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The path cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("{} is not a recording: its first line is not a recording header", path.display())]
    NotRecording {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: serde_json::Error,
    },
    /// The folders hold none.
    #[error("no recordings (*.jsonl.gz) in {0}; run from the repository or name some")]
    None(String),
}

#[derive(Deserialize)]
struct Header {
    name: String,
    scenario: Option<serde_json::Value>,
    processes: Vec<serde_json::Value>,
}

/// The recordings at the paths, folders searched, in the order of their names.
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

/// The scenario as `host-sleep (ms 8, rank 2)`.
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
